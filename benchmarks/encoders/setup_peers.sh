#!/bin/sh
# Each peer in an environment of its own: setup_peers.sh [FOLDER] (default: .venvs beside this).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/.venvs}
python=${PYTHON:-python3.11}
constraints=$here/../../constraints.txt # torch asked for otherwise may bring CUDA's packages

peer() { # name, then what pip installs
    name=$1
    shift
    [ -e "$folder/$name/done" ] && return
    "$python" -m venv "$folder/$name"
    "$folder/$name/bin/python" -m pip install --quiet --no-compile -c "$constraints" "$@"
    touch "$folder/$name/done"
}

peer sentence-transformers sentence-transformers==6.2.0 transformers==5.23.0 torch
peer bert-score bert-score==0.3.13 transformers==5.23.0 torch
peer onnxruntime onnxruntime==1.32.0 onnx onnxscript transformers==5.23.0 torch
peer openvino openvino==2026.4.1 transformers==5.23.0 torch
