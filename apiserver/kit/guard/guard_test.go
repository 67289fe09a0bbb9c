package guard_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/guard"
)

func TestPanicsReachWaiter(t *testing.T) {
	t.Parallel()
	boom := func() error { panic("boom") }
	var p *guard.Panic
	if err := guard.Call(boom); !errors.As(err, &p) || p.Value != "boom" ||
		!strings.Contains(string(p.Stack), "guard_test") {
		t.Errorf("Call: %v", err)
	}
	var g guard.Group
	g.Do(boom)
	g.Do(func() error { return nil })
	if err := g.Wait(); !errors.As(err, &p) {
		t.Errorf("Group: %v", err)
	}
	if err := <-guard.Spawn(boom); !errors.As(err, &p) {
		t.Errorf("Spawn: %v", err)
	}
	others := 0
	err := guard.Call(func() error {
		guard.Together(t.Context(), func(context.Context) { panic("boom") },
			func(ctx context.Context) { <-ctx.Done(); others++ })
		return nil
	})
	if !errors.As(err, &p) || p.Value != "boom" || others != 1 {
		t.Errorf("Together: %v, the other part ended %d times", err, others)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		g, err := guard.New(zap.NewNop(), clock.RealClock{}, metrics)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var at []time.Duration
		var wg sync.WaitGroup
		g.Go(&wg, "other", func() {
			g.Keep(t.Context(), clock.RealClock{}, "part", func() {
				if at = append(at, time.Since(began)); len(at) < 4 {
					panic("boom")
				}
			})
		})
		wg.Wait()
		if len(at) != 4 || at[1] != time.Second || at[2] != 3*time.Second || at[3] != 7*time.Second {
			t.Errorf("tried at %v", at)
		}
		if err := g.Check(); err == nil || err.Error() != "part: panic: boom" {
			t.Errorf("health: %v", err)
		}
		families, err := metrics.Gather()
		if err != nil || len(families) != 1 || families[0].Metric[0].Counter.GetValue() != 3 {
			t.Errorf("metrics %v, %v", families, err)
		}
		time.Sleep(time.Hour)
		if err := g.Check(); err != nil {
			t.Errorf("an hour later: %v", err)
		}
		g.Caught("pod", "a/b", &guard.Panic{Value: "boom"})
		if g.Check() == nil {
			t.Error("the panic does not make Check fail")
		}
		if g.Healthy("pod", "a/b"); g.Check() != nil {
			t.Error("Check still fails after Healthy")
		}
	})
}

// A panic of a handler ends its response and is counted. http.ErrAbortHandler only ends the response.
func TestHandler(t *testing.T) {
	t.Parallel()
	g := guard.Logging(zap.NewNop())
	for _, what := range []any{"boom", http.ErrAbortHandler} {
		server := httptest.NewServer(
			g.Handler("front", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(what) })))
		if answer, err := http.Get(server.URL); err == nil {
			answer.Body.Close()
			t.Errorf("%v: answered %s", what, answer.Status)
		}
		server.Close()
		if failed := g.Check() != nil; failed != (what == "boom") {
			t.Errorf("%v: health %v", what, g.Check())
		}
		g = guard.Logging(zap.NewNop())
	}
}

// unguarded lists the files that start goroutines without this package, and why.
var unguarded = map[string]string{
	"apiserver/registry/registry.go": "a panic is the last event of a watch",
	"apiserver/kit/client/remote.go": "the client imports only the store; decodes what a server sends",
	// The sample image contains only this program.
	"agent/runtime/fake/program/commands.go": "copies stdin",
	"agent/runtime/fake/program/system.go":   "keeps a core busy",
	"agent/runtime/fake/program/serve.go":    "net/http recovers what its handlers panic",
	// The store must not import packages of the server.
	"store/copy.go":         "an errgroup that is waited for",
	"store/bolt/content.go": "bbolt's panics become errors, see Guard in that package",
	"store/bolt/guard.go":   "reads inotify events",
	"store/etcd/etcd.go":    "compaction",
	"store/etcd/watch.go":   "decodes what etcd sends",
	"store/state/state.go":  "snapshots and expiry",
}

// A panic of a goroutine that this package does not start could end the process.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	t.Parallel()
	found, excepted := 0, map[string]bool{}
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() &&
			(name == "guard" || name == "testdata" || name == "internal" || strings.HasPrefix(name, ".") && len(name) > 2 ||
				strings.HasSuffix(name, "test")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		found++
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		where := filepath.ToSlash(strings.TrimPrefix(path, "../../../"))
		unguarded := func(n ast.Node) {
			if excepted[where] = true; unguarded[where] == "" {
				t.Errorf("%s: a goroutine without a guard", files.Position(n.Pos()))
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				unguarded(n)
			case *ast.ExprStmt:
				if call, ok := n.X.(*ast.CallExpr); ok && lost(call) {
					t.Errorf("%s: the panic of this goroutine is lost, use Spawn of a Guard", files.Position(n.Pos()))
				}
			case *ast.CallExpr: // Go of a WaitGroup or an errgroup takes one argument, that of a Guard three
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" && len(n.Args) == 1 {
					unguarded(n)
				}
			}
			return true
		})
		return nil
	})
	for file := range unguarded {
		if !excepted[file] {
			t.Errorf("%s starts no goroutine, remove its exception", file)
		}
	}
	if err != nil || found < 500 {
		t.Errorf("read %d files, %v", found, err)
	}
}

// lost reports whether a call is guard.Spawn, whose result is the goroutine's panic.
func lost(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Spawn" {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "guard"
}

// Wait returns a panic even if an error that it caused was returned first.
func TestGroupReturnsThePanic(t *testing.T) {
	t.Parallel()
	var g guard.Group
	failed := make(chan struct{})
	g.Do(func() error {
		defer func() { <-failed }()
		panic("cause")
	})
	g.Do(func() error {
		defer close(failed)
		return errors.New("consequence")
	})
	if p := (*guard.Panic)(nil); !errors.As(g.Wait(), &p) || p.Value != "cause" {
		t.Errorf("got %v", p)
	}
}
