#!/usr/bin/env bash
# Hold the boards against Grafana's own types. Packages go into a cache outside the repository,
# once for each version of package.json.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
boards="${1:-$here/../../dashboards}"
python="${PYTHON:-python3}"

versions="$(cksum < "$here/package.json" | cut -d ' ' -f 1)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/specbench/check_dashboards-$versions"
if [ ! -e "$cache/installed" ]; then
  mkdir -p "$cache"
  cp "$here/package.json" "$cache/"
  npm install --prefix "$cache" --no-package-lock --no-audit --no-fund --ignore-scripts --silent
  touch "$cache/installed"
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cp "$here/types.ts" "$here/must_fail.ts" "$work/"
ln -s "$cache/node_modules" "$work/node_modules"
"$python" "$here/to_typescript.py" "$boards" "$work/boards.ts"
"$cache/node_modules/.bin/tsc" --noEmit --strict --skipLibCheck --module esnext \
  --moduleResolution bundler --target es2022 "$work/boards.ts" "$work/must_fail.ts"
echo "dashboards: Grafana's types accept every board"
