// Command sbom writes the bill of materials of a program of `make dist` to standard output (CycloneDX, JSON): the Go
// modules of monopod and of the programs in it, as Go recorded them, the C libraries of runc, the web page's packages,
// and the module of an addon.
//
//	sbom VERSION RUNTIME PROGRAM    RUNTIME is the folder that testdata/runtime/build.sh wrote
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// embedded lists the npm packages in the folder web, and the module of the addon gateway-api; see docs/dependencies.md.
var embedded = []string{
	"pkg:npm/%40xterm/xterm@6.0.0", "pkg:npm/%40xterm/addon-fit@0.11.0",
	"pkg:npm/%40codemirror/autocomplete@6.20.4", "pkg:npm/%40codemirror/commands@6.11.1",
	"pkg:npm/%40codemirror/language@6.13.1", "pkg:npm/%40codemirror/legacy-modes@6.5.5",
	"pkg:npm/%40codemirror/lint@6.9.8", "pkg:npm/%40codemirror/search@6.7.2", "pkg:npm/%40codemirror/state@6.7.6",
	"pkg:npm/%40codemirror/streamparser@6.0.0", "pkg:npm/%40codemirror/view@6.43.15",
	"pkg:npm/%40lezer/common@1.5.5", "pkg:npm/%40lezer/highlight@1.2.5",
	"pkg:npm/%40marijn/find-cluster-break@1.0.4", "pkg:npm/crelt@1.0.7", "pkg:npm/style-mod@4.1.5",
	"pkg:npm/w3c-keyname@2.2.8", "pkg:golang/sigs.k8s.io/gateway-api@v1.6.3",
}

func main() {
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// bill contains components by reference, because several programs use the same modules.
type bill struct {
	components   map[string]cdx.Component
	dependencies []cdx.Dependency
}

func write(version, dir, program string) error {
	b := bill{components: map[string]cdx.Component{}}
	clibraries, err := os.ReadFile(filepath.Join(dir, "clibraries"))
	if err != nil {
		return err
	}
	inside := slices.Clone(embedded)
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		var libraries []string
		if name == "runc" {
			libraries = strings.Fields(string(clibraries))
		}
		c, err := b.program(name, filepath.Join(dir, name), libraries)
		if err != nil {
			return err
		}
		b.components[c.BOMRef] = c
		inside = append(inside, c.BOMRef)
	}
	monopod, err := b.program("monopod", program, inside)
	if err != nil {
		return err
	}
	if version != "" {
		monopod.Version = version
	}
	// The timestamp is the time of the commit, so that the same commit gives the same file.
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: time.Unix(seconds, 0).UTC().Format(time.RFC3339), Component: &monopod}
	components := slices.SortedFunc(maps.Values(b.components),
		func(x, y cdx.Component) int { return strings.Compare(x.BOMRef, y.BOMRef) })
	bom.Components, bom.Dependencies = &components, &b.dependencies
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).
		EncodeVersion(bom, cdx.SpecVersion1_6)
}

// program adds the modules of a Go program and the other references, and returns the program's component.
func (b *bill) program(name, path string, others []string) (cdx.Component, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return cdx.Component{}, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return cdx.Component{}, err
	}
	sum := sha256.Sum256(content)
	all := append(slices.Clone(others), "pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go"))
	changed := map[string]bool{} // modules that build.sh patches
	version, modules := info.Main.Version, info.Deps
	if info.Main.Sum != "" { // the main package belongs to a dependency
		modules = append(modules, &info.Main)
	}
	for _, m := range modules {
		if strings.HasSuffix(m.Path, "/"+name+"/v2") { // containerd: its main package is in this repository
			version = m.Version
		}
		ref := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
		if m.Replace != nil {
			ref += "#patched"
			changed[ref] = true
		}
		all = append(all, ref)
	}
	for _, ref := range all {
		if _, known := b.components[ref]; known || !strings.HasPrefix(ref, "pkg:") {
			continue
		}
		c, err := library(ref)
		if err != nil {
			return cdx.Component{}, err
		}
		if changed[ref] {
			c.Pedigree = &cdx.Pedigree{Notes: "changed by testdata/runtime/build.sh"}
		}
		b.components[ref] = c
	}
	slices.Sort(all)
	b.dependencies = append(b.dependencies, cdx.Dependency{Ref: name, Dependencies: &all})
	return cdx.Component{
		BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}, nil
}

// library returns the component of a package URL: pkg:TYPE/NAME@VERSION?QUALIFIERS#MARK.
func library(ref string) (cdx.Component, error) {
	purl, _, _ := strings.Cut(ref, "#")
	path, _, _ := strings.Cut(purl, "?")
	path, err := url.PathUnescape(path)
	if err != nil {
		return cdx.Component{}, err
	}
	at := strings.LastIndex(path, "@")
	if at < 0 {
		return cdx.Component{}, fmt.Errorf("%s has no version", ref)
	}
	_, name, _ := strings.Cut(path[:at], "/")
	return cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: strings.TrimPrefix(name, "debian/"), Version: path[at+1:],
		PackageURL: purl,
	}, nil
}
