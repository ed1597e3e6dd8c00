#!/usr/bin/env bash
# Rehearses a release: tags a clone, then uses the tags as a user does who has nothing but Go.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v0.999.0 path=github.com/zkrecipes/zkrecipes
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT

git clone -q . "$work/clone"
git -C "$work/clone" config user.name rehearsal
git -C "$work/clone" config user.email rehearsal@localhost
(cd "$work/clone" && integration/release/tag.sh $version)

. integration/release/clone.sh "$work/clone" "$work"
mkdir "$work/user"
cd "$work/user"
go mod init example.com/user
for module in '' /contrib/certmagiczkrecipes /contrib/fxzkrecipes /contrib/gocronzkrecipes /contrib/otelzkrecipes /contrib/promzkrecipes /contrib/saslkrb5; do
	go get "$path$module@$version"
done
cat >main.go <<'END'
package main

import (
	_ "github.com/zkrecipes/zkrecipes/contrib/certmagiczkrecipes"
	_ "github.com/zkrecipes/zkrecipes/contrib/fxzkrecipes"
	_ "github.com/zkrecipes/zkrecipes/contrib/gocronzkrecipes"
	_ "github.com/zkrecipes/zkrecipes/contrib/otelzkrecipes"
	_ "github.com/zkrecipes/zkrecipes/contrib/promzkrecipes"
	_ "github.com/zkrecipes/zkrecipes/contrib/saslkrb5"
	_ "github.com/zkrecipes/zkrecipes/recipes/mutex"
)

func main() {}
END
go mod tidy
go vet .

GOBIN=$work go install -trimpath "$path/cmd/zkr@$version"
printed=$("$work/zkr" version)
echo "$printed"
[[ $printed == "zkr $version "* ]]
