package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

var (
	update = flag.Bool("update", false, "write the generated pages of docs")
	man    = flag.String("man", "", "folder for the man pages, for testdata/deb.sh")
)

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// unslugged matches characters that are not part of a heading's anchor.
	unslugged = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// TestLinks checks that links between the documents lead to pages and headings that exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor := found[1], found[2]
			if strings.Contains(target, "://") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the target of the link %s does not exist", page, target)
			} else if anchor != "" && !headings(read(t, to))[anchor] {
				t.Errorf("%s: %s has no heading #%s", page, to, anchor)
			}
		}
	}
}

// example matches a block of Go code and the file that the page names before it.
var example = regexp.MustCompile("(?s)`([a-z/_]+\\.go)`\\):\n\n```go\n(.*?)```")

// The files that CONTRIBUTING.md names contain its examples.
func TestExamplesAreCode(t *testing.T) {
	t.Parallel()
	all := example.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	if len(all) != 3 {
		t.Errorf("found %d examples, want 3", len(all))
	}
	for _, found := range all {
		if !strings.Contains(read(t, found[1]), found[2]) {
			t.Errorf("%s does not contain:\n%s", found[1], found[2])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// headings returns the anchors of a page's headings.
func headings(page string) map[string]bool {
	out := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		out[strings.ReplaceAll(unslugged.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")] = true
	}
	return out
}

// TestFlagsPage compares docs/flags.md with the flags of the commands; go test . -update writes the page.
func TestFlagsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Flags\n\nFor those who look up a flag: every command with its flags and defaults, generated from " +
		"the program. An environment\nvariable can set each flag too, and a configuration file those of `serve`: each " +
		"table below it has the name of the\nfile's section ([the command line](command-line.md#settings)).\n")
	describe(&page, command(), settings(t))
	const file = "docs/flags.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, file) != page.String() {
		t.Errorf("%s is not up to date: go test . -update", file)
	}
}

// describe writes a command and its subcommands. Flags that the configuration file can set are grouped by its sections.
func describe(w *strings.Builder, cmd *cobra.Command, sections map[string]map[string]any) {
	if cmd.Runnable() && !cmd.HasSubCommands() && cmd.Name() != "help" && !cmd.Hidden {
		fmt.Fprintf(w, "\n## %s\n\n%s.\n", cmd.UseLine(), cmd.Short)
		rest := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.InheritedFlags() // adds them to Flags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !f.Hidden {
				rest.AddFlag(f)
			}
		})
		if cmd.Name() == "serve" {
			for _, section := range slices.Sorted(maps.Keys(sections)) {
				of := pflag.NewFlagSet("", pflag.ContinueOnError)
				for name := range sections[section] {
					of.AddFlag(rest.Lookup(name))
				}
				fmt.Fprintf(w, "\n### %s\n", section)
				table(w, of)
			}
		} else if cmd.Name() != "config" { // config has the flags of serve
			table(w, rest)
		}
	}
	for _, sub := range cmd.Commands() {
		describe(w, sub, sections)
	}
}

func table(w *strings.Builder, flags *pflag.FlagSet) {
	if !flags.HasFlags() {
		return
	}
	w.WriteString("\n| flag | default | |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		value := ""
		if f.DefValue != "" && f.DefValue != "[]" {
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(w, "| `--%s` | %s | %s |\n", f.Name, strings.ReplaceAll(value, "|", "\\|"),
			strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
}

// TestManPages makes a man page of each command.
func TestManPages(t *testing.T) {
	dir := *man
	if dir == "" {
		dir = t.TempDir()
	}
	root := command()
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	// The date is that of SOURCE_DATE_EPOCH.
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Monopod", Manual: "Monopod"}, dir); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"monopod":               {".SH SYNOPSIS", `monopod-install(1)`},
		"monopod-serve":         {"--data-dir", "/var/lib/monopod"},
		"monopod-snapshot-save": {`monopod-snapshot(1)`},
		"monopod-upgrade":       {"FILE|URL", "--insecure-skip-signature"},
	} {
		text := read(t, filepath.Join(dir, page+".1"))
		for _, want := range want {
			if !strings.Contains(text, want) {
				t.Errorf("%s.1 does not contain %q", page, want)
			}
		}
	}
}

// In the help, every command has a subject, except commands for scripts and tests.
func TestSubjects(t *testing.T) {
	t.Parallel()
	var rest []string
	for _, cmd := range command().Commands() {
		if cmd.GroupID == "" {
			rest = append(rest, cmd.Name())
		}
	}
	if !slices.Equal(rest, []string{"completion", "envtest-assets", "help", "version"}) {
		t.Errorf("commands without a subject: %v", rest)
	}
}
