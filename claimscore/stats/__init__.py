"""Every bootstrap, interval, correlation, test and measure of classifiers, each in one place.

Pure functions over arrays. `agreement` alone imports `scipy.stats`, which takes half a second, so
commands that compute no correlation do not import it.
"""
