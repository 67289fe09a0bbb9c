package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	namedFile = regexp.MustCompile("`([a-z/_]+\\.go)`((?:,? `[A-Za-z]+`)+)")
	namedFunc = regexp.MustCompile("`([A-Za-z]+)`")
)

// The walks of docs/architecture.md name files and the functions to read in them.
func TestWalksNameExistingFunctions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	steps := namedFile.FindAllStringSubmatch(text, -1)
	if len(steps) < 40 {
		t.Fatalf("only %d steps are found", len(steps))
	}
	for _, step := range steps {
		there := functions(t, step[1])
		for _, name := range namedFunc.FindAllStringSubmatch(step[2], -1) {
			if !there[name[1]] {
				t.Errorf("%s has no function %s", step[1], name[1])
			}
		}
	}
}

// numbered is a step of a walk: the file that it begins with.
var numbered = regexp.MustCompile("(?m)^\\d+\\. `([a-z/_]+\\.go)`")

// A walk reads each file once: a reader never goes back to a file of an earlier step. The
// second phase of a deletion is a walk of its own.
func TestWalksFollowFileOrder(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## A pod is created")
	created, text, _ := strings.Cut(text, "## A pod is deleted")
	marked, removed, found := strings.Cut(text, "\nPhase two")
	if !found {
		t.Fatal("the walk of a deletion has no phase two")
	}
	for _, walk := range []string{created, marked, removed} {
		steps := numbered.FindAllStringSubmatch(walk, -1)
		if len(steps) < 3 {
			t.Errorf("a walk has only %d steps", len(steps))
		}
		read, last := map[string]bool{}, ""
		for _, step := range steps {
			if file := step[1]; file != last {
				if read[file] {
					t.Errorf("a walk goes from %s back to %s", last, file)
				}
				read[file], last = true, file
			}
		}
	}
}

// placed is a path in the table of places; a name with a dot that is not a file is Go code.
var placed = regexp.MustCompile("`((?:agent|apiserver|controllers|store|web)(?:/[a-z_]+)*(?:\\.go)?)`")

// Whoever adds something finds its place by the table: each path in it exists.
func TestPlacesExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Where to add something")
	paths := placed.FindAllStringSubmatch(table, -1)
	if len(paths) < 20 {
		t.Fatalf("only %d paths are found", len(paths))
	}
	for _, path := range paths {
		if _, err := os.Stat(path[1]); err != nil {
			t.Error(err)
		}
	}
}

// functions are the names of a file's functions and methods.
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	names := map[string]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names[f.Name.Name] = true
		}
	}
	return names
}
