package main_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The limits of the house. They hold for everything that is linked into the program;
// tests are not counted.
const (
	maxFields  = 20   // of a struct that is not plain data
	maxMethods = 40   // of a type
	maxFiles   = 20   // of a folder
	maxLines   = 2000 // of a package
	maxFolders = 12   // direct subfolders
)

// wide are the folders with at most maxFolders folders.
var wide = []string{"agent", "apiserver"}

// exceptions are the places that are yet to be rebuilt, with the size that they must not
// exceed. The list only shrinks: an entry that is within the limit is an error.
var exceptions = map[string]int{}

// measure is one thing that has a limit.
type measure struct {
	what  string // the key in exceptions
	size  int
	limit int
}

// TestTheHouseIsWithinItsLimits holds the limits. With -v it prints the largest of each
// kind, and the median and 90th percentile of the lines of functions.
func TestTheHouseIsWithinItsLimits(t *testing.T) {
	t.Parallel()
	packages := housePackages(t)
	var all []measure
	var functions []int
	folders := map[string]int{}
	for dir, p := range packages {
		all = append(all, p.measures(dir)...)
		functions = append(functions, p.functions...)
		t.Logf("%-40s %5d lines %3d files, functions of %d lines (median), %d (90th percentile)",
			dir, p.lines, p.files, percentile(p.functions, 50), percentile(p.functions, 90))
	}
	t.Logf("%d functions of %d lines (median), %d (90th percentile)", len(functions), percentile(functions, 50), percentile(functions, 90))
	for _, dir := range wide {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() && e.Name() != "testdata" {
				folders[dir]++
			}
		}
		all = append(all, measure{dir + " folders", folders[dir], maxFolders})
	}
	known := maps.Clone(exceptions)
	slices.SortFunc(all, func(a, b measure) int { return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.what, b.what)) })
	for _, m := range all {
		allowed, excepted := exceptions[m.what]
		delete(known, m.what)
		switch {
		case excepted && m.size <= m.limit:
			t.Errorf("%s: %d is within the limit of %d, remove its exception", m.what, m.size, m.limit)
		case excepted && m.size > allowed:
			t.Errorf("%s: %d, the exception allows %d (the limit is %d)", m.what, m.size, allowed, m.limit)
		case !excepted && m.size > m.limit:
			t.Errorf("%s: %d, the limit is %d", m.what, m.size, m.limit)
		}
		if m.size*4 >= m.limit*3 {
			t.Logf("%-60s %5d of %d", m.what, m.size, m.limit)
		}
	}
	for what := range known {
		t.Errorf("%s: there is an exception for what does not exist, remove it", what)
	}
}

// housePackage is what is measured of one folder.
type housePackage struct {
	files, lines int
	structs      map[string]*ast.StructType
	methods      map[string]int // by receiver
	functions    []int          // their lines
}

// housePackages are those linked into the program, by folder.
func housePackages(t *testing.T) map[string]*housePackage {
	t.Helper()
	packages := map[string]*housePackage{}
	for _, root := range []string{"agent", "apiserver", "controllers", "store", "web"} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return cmp.Or(err, fs.SkipDir)
			}
			dir := path.Dir(filepath.ToSlash(file))
			if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(dir, "test") {
				return nil
			}
			p := packages[dir]
			if p == nil {
				p = &housePackage{structs: map[string]*ast.StructType{}, methods: map[string]int{}}
				packages[dir] = p
			}
			return p.read(file)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return packages
}

// read adds a file. Generated ones count for nothing.
func (p *housePackage) read(file string) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(f) {
		return err
	}
	p.files++
	p.lines += set.File(f.Pos()).LineCount()
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			p.functions = append(p.functions, set.Position(decl.End()).Line-set.Position(decl.Pos()).Line+1)
			if decl.Recv != nil {
				p.methods[receiver(decl.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, s := range decl.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					if st, ok := s.Type.(*ast.StructType); ok {
						p.structs[s.Name.Name] = st
					}
				}
			}
		}
	}
	return nil
}

// receiver is the name of the type that a method is of.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

func (p *housePackage) measures(dir string) []measure {
	out := []measure{{dir + " files", p.files, maxFiles}, {dir + " lines", p.lines, maxLines}}
	for name, s := range p.structs {
		if n, plain := p.fields(s); !plain {
			out = append(out, measure{dir + "." + name + " fields", n, maxFields})
		}
	}
	for name, n := range p.methods {
		out = append(out, measure{dir + "." + name + " methods", n, maxMethods})
	}
	return out
}

// fields counts those of a struct, and of structs of the package that it embeds. A
// struct whose fields are all exported is plain data: configuration, an API type.
func (p *housePackage) fields(s *ast.StructType) (n int, plain bool) {
	plain = true
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			n++
			if id, ok := f.Type.(*ast.Ident); ok && p.structs[id.Name] != nil {
				more, inner := p.fields(p.structs[id.Name])
				n, plain = n-1+more, plain && inner
			}
			continue
		}
		for _, name := range f.Names {
			n++
			plain = plain && name.IsExported()
		}
	}
	return n, plain
}

// percentile is the value that p percent of the sizes do not exceed.
func percentile(sizes []int, p int) int {
	if len(sizes) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(sizes))
	return sorted[(len(sorted)-1)*p/100]
}
