package controllers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/internal/apitest"
)

// stirrer is a controller that exists only in this file: it maintains one ConfigMap.
type stirrer struct {
	deps  follow.Deps
	spoon string
}

func (s *stirrer) Name() string { return "stirrer" }

func (s *stirrer) Run(ctx context.Context) error {
	_, err := s.deps.Client.Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.spoon}})
	<-ctx.Done()
	return err
}

// stirrers returns the controller's entry, which is its whole definition.
func stirrers(spoons *int) Entry {
	return Entry{
		Name: "stirrer", Aliases: []string{"stirrer-controller"}, Component: "stirrer",
		Settings: []Setting{workers(spoons, "concurrent-stirrer-syncs", 2, "pots")},
		New: func(d follow.Deps, _ record.Eventer) (follow.Controller, error) {
			return &stirrer{d, map[bool]string{true: "many", false: "few"}[*spoons > 2]}, nil
		},
	}
}

// A controller is one entry: its flags, its health check and its name in --controllers come from it.
func TestNewControllerIsOneEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		spoons := 0
		table := func(c *Config) []Entry { return append(All(c), stirrers(&spoons)) }
		cfg := Config{Controllers: []string{"stirrer-controller"}, Kinds: apitest.Kinds()}
		all := table(&cfg)
		for _, setting := range settings(all) {
			setting.reset()
		}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.flags(flags, all)
		if flag := flags.Lookup("concurrent-stirrer-syncs"); flag == nil || flag.DefValue != "2" {
			t.Fatalf("flag: %+v", flag)
		}
		if err := flags.Parse([]string{"--concurrent-stirrer-syncs=0"}); err != nil || check(all) == nil {
			t.Error("--concurrent-stirrer-syncs=0 was accepted")
		}
		if err := flags.Parse([]string{"--concurrent-stirrer-syncs=3"}); err != nil || check(all) != nil {
			t.Error(err, check(all))
		}
		m, err := newManager(Deps{Client: api.Client, Metrics: api.Registry}, cfg, table)
		if err != nil {
			t.Fatal(err)
		}
		if checks := m.Checks(); len(checks) != 1 || checks[0].Name != "stirrer" {
			t.Errorf("checks: %v", checks)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		if _, ok := apitest.Get[*corev1.ConfigMap](api, "default", "many"); !ok {
			t.Error("the controller does not run, or not with the value of its flag")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		off, err := enabled(all, []string{"*", "-stirrer"})
		if err != nil || slices.ContainsFunc(off, func(e Entry) bool { return e.Name == "stirrer" }) {
			t.Errorf("--controllers=*,-stirrer does not disable the controller: %v", err)
		}
	})
}
