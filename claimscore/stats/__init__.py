"""Every bootstrap, interval, correlation, test and measure of classifiers, each in one place.

Pure functions over arrays. `bootstrap` needs numpy alone; the other modules import scipy, which
takes half a second, so commands that compute no correlation or test do not import them.
"""
