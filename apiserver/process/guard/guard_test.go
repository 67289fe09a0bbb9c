package guard_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/process/guard"
)

func TestPanicsComeToWhoWaits(t *testing.T) {
	t.Parallel()
	boom := func() error { panic("boom") }
	var p *guard.Panic
	if err := guard.Call(boom); !errors.As(err, &p) || p.Value != "boom" || !strings.Contains(string(p.Stack), "guard_test") {
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
		guard.Together(t.Context(), func(context.Context) { panic("boom") }, func(ctx context.Context) { <-ctx.Done(); others++ })
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
			t.Error("not shown")
		}
		if g.Well("pod", "a/b"); g.Check() != nil {
			t.Error("still shown")
		}
	})
}

// A goroutine that this package does not start could end the process.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("../../../agent", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "guard" || name == "testdata" || strings.HasSuffix(name, "test")) {
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
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a goroutine without a guard", files.Position(n.Pos()))
			case *ast.CallExpr: // Go of a WaitGroup or an errgroup takes one argument, that of a Guard three
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" && len(n.Args) == 1 {
					t.Errorf("%s: a goroutine without a guard", files.Position(n.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil || found < 100 {
		t.Errorf("%d files read, %v", found, err)
	}
}
