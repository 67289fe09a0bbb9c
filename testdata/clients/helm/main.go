// Helm manages one release with Helm 4's Go library, as the program helm does:
//
//	helm install NAME CHART [KEY=VALUE...]
//	helm upgrade NAME CHART [KEY=VALUE...]
//	helm rollback NAME
//	helm uninstall NAME
//	helm status NAME
//
// It uses $KUBECONFIG, the namespace default and server-side apply, and waits until all objects are ready. A rollback
// also reverts fields that other managers have changed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// waitTime is the timeout until all objects are ready or deleted.
const waitTime = time.Minute

const namespace = "default"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: helm install|upgrade|rollback|uninstall|status NAME [CHART] [KEY=VALUE...]")
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.Namespace = new(namespace)
	cfg := action.NewConfiguration()
	if err := cfg.Init(flags, namespace, "secret"); err != nil {
		return err
	}
	verb, name, rest := args[0], args[1], args[2:]
	switch verb {
	case "install", "upgrade":
		if len(rest) == 0 {
			return fmt.Errorf("%s needs a chart", verb)
		}
		ch, err := loader.Load(rest[0])
		if err != nil {
			return err
		}
		set, err := values(rest[1:])
		if err != nil {
			return err
		}
		return put(cfg, verb, name, ch, set)
	case "rollback":
		r := action.NewRollback(cfg)
		r.WaitStrategy, r.Timeout, r.ServerSideApply = kube.StatusWatcherStrategy, waitTime, "auto"
		r.ForceConflicts = true
		return r.Run(name)
	case "uninstall":
		u := action.NewUninstall(cfg)
		u.WaitStrategy, u.Timeout = kube.StatusWatcherStrategy, waitTime
		_, err := u.Run(name)
		return err
	case "status":
		return status(cfg, name)
	}
	return fmt.Errorf("%s is not known", verb)
}

// values parses KEY=VALUE as --set does: a.b=c is a nested value.
func values(pairs []string) (map[string]any, error) {
	return strvals.Parse(strings.Join(pairs, ","))
}

func put(cfg *action.Configuration, verb, name string, ch chart.Charter, values map[string]any) error {
	ctx := context.Background()
	if verb == "upgrade" {
		u := action.NewUpgrade(cfg)
		u.Namespace, u.WaitStrategy, u.Timeout = namespace, kube.StatusWatcherStrategy, waitTime
		_, err := u.RunWithContext(ctx, name, ch, values)
		return err
	}
	i := action.NewInstall(cfg)
	i.ReleaseName, i.Namespace, i.WaitStrategy, i.Timeout = name, namespace, kube.StatusWatcherStrategy, waitTime
	_, err := i.RunWithContext(ctx, ch, values)
	return err
}

// status prints the revision and the state of the release.
func status(cfg *action.Configuration, name string) error {
	got, err := action.NewGet(cfg).Run(name)
	if err != nil {
		return err
	}
	r, err := release.NewAccessor(got)
	if err != nil {
		return err
	}
	fmt.Println(r.Name(), r.Version(), r.Status())
	return nil
}
