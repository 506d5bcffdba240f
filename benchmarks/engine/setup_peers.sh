#!/bin/sh
# Each peer in an environment of its own: setup_peers.sh [FOLDER] (default: .venvs beside this).
set -eu
folder=${1:-$(dirname "$0")/.venvs}
python=${PYTHON:-python3.11}

peer() { # name, then what pip installs
    name=$1
    shift
    [ -e "$folder/$name/done" ] && return
    "$python" -m venv "$folder/$name"
    "$folder/$name/bin/python" -m pip install --quiet "$@"
    touch "$folder/$name/done"
}

peer aiohttp aiohttp==3.14.5
peer openai openai==3.57.0
peer litellm litellm==1.110.2
peer curator bespokelabs-curator==0.1.31 datasets==3.6.0 litellm==1.83.7
