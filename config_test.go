package main

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"monopod/agent/cmd/commandline"
)

// TestConfigPrintsEveryFlag compares the flags of serve, as --help lists them, with the settings that config prints.
func TestConfigPrintsEveryFlag(t *testing.T) {
	want := map[string]bool{}
	serve, _ := serveCommands()
	serve.Flags().VisitAll(func(f *pflag.Flag) { want[f.Name] = !f.Hidden })
	delete(want, commandline.FileFlag) // the file cannot set the path of the file
	maps.DeleteFunc(want, func(_ string, shown bool) bool { return !shown })

	file := settings(t)
	got := map[string]bool{}
	for section, names := range file {
		for name := range names {
			if got[name] {
				t.Errorf("%s is in several sections, also in %s", name, section)
			}
			got[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !got[name] {
			t.Errorf("config does not print the flag --%s of serve", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !want[name] {
			t.Errorf("config prints %s, which is not a flag of serve", name)
		}
	}
	if len(want) < 50 {
		t.Errorf("serve has only %d flags", len(want))
	}
}

// settings returns the settings that config prints, by section.
func settings(t *testing.T) (file map[string]map[string]any) {
	t.Helper()
	var out bytes.Buffer
	_, config := serveCommands()
	config.SetOut(&out)
	config.SetArgs([]string{"--data-dir", t.TempDir()})
	if err := config.Execute(); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(out.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	return file
}
