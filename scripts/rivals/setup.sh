#!/usr/bin/env bash
# Makes a virtual environment for a rival: setup.sh RIVAL DIRECTORY
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rival=$1
directory=$2
${PYTHON:-python3} -m venv "$directory"
"$directory/bin/pip" install --requirement "$here/$rival/requirements.txt"
# the drivers, and the processes that they start, import common.py
site=$("$directory/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$here" > "$site/rivals.pth"
