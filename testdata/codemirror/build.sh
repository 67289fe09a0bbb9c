#!/bin/sh
# Builds web/page/codemirror.js.gz of the versions in package-lock.json: the same to the byte each time. It needs npm.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp entry.js package.json package-lock.json "$work"
out=$PWD/../../web/page/codemirror.js.gz
cd "$work"
npm ci --silent

# The page's policy allows no <style> elements. style-mod uses a constructed sheet instead, which the policy allows, but
# only in a shadow root: here in the document, too.
styles=node_modules/style-mod/src/style-mod.js
sed -i 's/if (!root\.head && root\.adoptedStyleSheets/if (root.adoptedStyleSheets/' $styles
grep -q 'if (root\.adoptedStyleSheets' $styles

npx esbuild entry.js --bundle --minify --format=esm --target=es2022 --legal-comments=none --log-level=warning --outfile=codemirror.js
gzip -9nc codemirror.js >"$out"
ls -l "$out"
