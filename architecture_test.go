package main_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedFile = regexp.MustCompile("`([a-z/_]+\\.go)`((?:,? `[A-Za-z]+`)+)")
	namedFunc = regexp.MustCompile("`([A-Za-z]+)`")
)

// page returns the text of pages in docs.
func page(t *testing.T, names ...string) string {
	t.Helper()
	var text strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join("docs", name))
		if err != nil {
			t.Fatal(err)
		}
		text.Write(data)
	}
	return text.String()
}

// Each function that the walks and the places name exists in the file that they name.
func TestWalksNameExistingFunctions(t *testing.T) {
	t.Parallel()
	text := strings.Join(strings.Fields(page(t, "walks.md", "places.md")), " ")
	steps := namedFile.FindAllStringSubmatch(text, -1)
	if len(steps) < 40 {
		t.Fatalf("found only %d steps", len(steps))
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

// numbered matches a step of a walk and the file with which it begins.
var numbered = regexp.MustCompile("(?m)^\\d+\\. `([a-z/_]+\\.go)`")

// No walk goes back to a file of an earlier step. The second phase of a deletion and the client's side of a resumed
// watch are separate walks.
func TestWalksFollowFileOrder(t *testing.T) {
	t.Parallel()
	rest := page(t, "walks.md")
	var walks []string
	for _, next := range []string{"## A pod is created", "## A pod is deleted", "\nPhase two", "## A watch is resumed",
		"\nControllers and agent"} {
		walk, after, found := strings.Cut(rest, next)
		if !found {
			t.Fatalf("docs/walks.md does not contain %q after the previous walk", next)
		}
		walks, rest = append(walks, walk), after
	}
	for _, walk := range append(walks[1:], rest) {
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

// placed matches a path in the table of places.
var placed = regexp.MustCompile("`((?:agent|apiserver|controllers|store|web)(?:/[a-z_]+)*(?:\\.go)?)`")

// Each path in the table "Where to add something" exists.
func TestPlacesExist(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(page(t, "places.md"), "## Where to add something")
	paths := placed.FindAllStringSubmatch(table, -1)
	if len(paths) < 20 {
		t.Fatalf("found only %d paths", len(paths))
	}
	for _, path := range paths {
		if _, err := os.Stat(path[1]); err != nil {
			t.Error(err)
		}
	}
}

var (
	// word matches a quoted Go name, with or without its package or type.
	word = regexp.MustCompile("`(?:([A-Za-z]+)\\.)?([A-Za-z]+)`")
	// wordAt matches a quoted name and the file or folder that declares it.
	wordAt = regexp.MustCompile(
		"`([A-Za-z]+)` (?:in|of) `((?:agent|apiserver|controllers|store|web)(?:/[a-z_]+)*(?:\\.go)?)`")
)

// Each Go name in these pages is declared: in the package, type, file or folder that the page names with it, otherwise
// in any package. It may also be the name of a folder.
func TestNamesExist(t *testing.T) {
	t.Parallel()
	text := strings.Join(strings.Fields(page(t, "architecture.md", "walks.md", "places.md")), " ")
	declared := declarations(t)
	places := wordAt.FindAllStringSubmatch(text, -1)
	if len(places) < 3 {
		t.Errorf("found only %d names with a file or folder", len(places))
	}
	for _, at := range places {
		if !declared[at[2]+" "+at[1]] {
			t.Errorf("%s is not declared in %s", at[1], at[2])
		}
	}
	names := word.FindAllStringSubmatch(text, -1)
	if len(names) < 60 {
		t.Fatalf("found only %d names", len(names))
	}
	for _, name := range names {
		if file := name[2] == "go"; !file && !declared[strings.TrimPrefix(name[1]+"."+name[2], ".")] {
			t.Errorf("%s is not declared", strings.Trim(name[0], "`"))
		}
	}
}

// The table of floors lists the rooms in the order of allRooms. The files and functions that a row quotes are in its
// room.
func TestFloorsListAllRooms(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(page(t, "architecture.md"), "## The floors")
	table, _, _ = strings.Cut(table, "\n## ")
	quoted := regexp.MustCompile("`([a-z/]+(?:\\.go)?)`")
	var rooms, want []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		room := strings.Trim(cells[1], " `")
		rooms = append(rooms, strings.TrimSuffix(room, "main.go"))
		for _, part := range quoted.FindAllStringSubmatch(cells[2], -1) {
			_, err := os.Stat(filepath.Join(room, part[1]))
			if err != nil && (path.Ext(room) != ".go" || !functions(t, room)[part[1]]) {
				t.Errorf("%s has no %s", room, part[1])
			}
		}
	}
	for _, h := range allRooms {
		want = append(want, h.room)
	}
	if !slices.Equal(rooms, want) {
		t.Errorf("the floors are %q, want %q", rooms, want)
	}
}

// Each row of the table "Where is" names a file and a function.
func TestWhereRowsNameFunctions(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(page(t, "places.md"), "## Where is")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| where |") {
			rows++
			if !namedFile.MatchString(line) { // TestWalksNameExistingFunctions checks that the functions exist
				t.Errorf("no file with a function: %s", line)
			}
		}
	}
	if rows < 16 {
		t.Errorf("found only %d rows", rows)
	}
}

// declarations returns the names that the program declares: alone, after the name of their package or type, and after
// the path of their folder or file. It also returns the names of folders.
func declarations(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, root := range []string{"agent", "apiserver", "controllers", "store", "web"} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return cmp.Or(err, fs.SkipDir)
			}
			if d.IsDir() {
				all[d.Name()] = true
				return nil
			}
			if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			declare := func(name, of string) {
				for _, prefix := range []string{"", f.Name.Name + ".", of + ".", file + " ", path.Dir(file) + " "} {
					all[prefix+name] = true
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					of := ""
					if n.Recv != nil {
						of = receiver(n.Recv.List[0].Type)
					}
					declare(n.Name.Name, of)
					return false
				case *ast.FuncType: // its parameters are fields
					return false
				case *ast.TypeSpec:
					declare(n.Name.Name, "")
				case *ast.ValueSpec:
					for _, name := range n.Names {
						declare(name.Name, "")
					}
				case *ast.Field:
					for _, name := range n.Names {
						declare(name.Name, "")
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// functions returns the names of a file's functions and methods.
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

// receiver returns the name of a method's receiver type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
