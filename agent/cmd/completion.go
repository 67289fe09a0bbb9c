package cmd

import (
	"context"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/local"
)

// completionTimeout is how long a user who has pressed Tab waits.
const completionTimeout = 2 * time.Second

// kind is a kind whose names are completed.
type kind struct {
	name     string // as it is completed
	path     string // of its group and version
	resource string
	cluster  bool // it has no namespace
	logs     bool // its pods have logs
}

var kinds = []kind{
	{"pod", "/api/v1", "pods", false, true}, {"deploy", "/apis/apps/v1", "deployments", false, true},
	{"rs", "/apis/apps/v1", "replicasets", false, true},
	{"sts", "/apis/apps/v1", "statefulsets", false, true}, {"ds", "/apis/apps/v1", "daemonsets", false, true},
	{"job", "/apis/batch/v1", "jobs", false, true},
	{"cronjob", "/apis/batch/v1", "cronjobs", false, true}, {"svc", "/api/v1", "services", false, true},
	{"ingress", "/apis/networking.k8s.io/v1", "ingresses", false, false},
	{"pvc", "/api/v1", "persistentvolumeclaims", false, false}, {"node", "/api/v1", "nodes", true, false},
	{"hpa", "/apis/autoscaling/v2", "horizontalpodautoscalers", false, false},
	{"pdb", "/apis/policy/v1", "poddisruptionbudgets", false, false},
}

// Func is cobra's ValidArgsFunction.
type Func = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// Objects completes one KIND/NAME; with pods, also the bare name of a pod, and only kinds whose pods have logs.
func Objects(place *local.Place, namespace *string, pods bool) Func {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a := askServer(cmd, place, namespace)
		defer a.end()
		if name, _, ok := strings.Cut(typed, "/"); ok {
			for _, k := range kinds {
				if k.name == name || k.resource == name || strings.TrimSuffix(k.resource, "s") == name {
					return a.names(k, name+"/"), cobra.ShellCompDirectiveNoFileComp
				}
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var all []string
		if pods {
			all = a.names(kinds[0], "")
		}
		for _, k := range kinds {
			if k.logs || !pods {
				all = append(all, k.name+"/")
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// Images completes names of images.
func Images(place *local.Place) Func {
	return func(cmd *cobra.Command, args []string, _ string) (all []string, _ cobra.ShellCompDirective) {
		a := askServer(cmd, place, nil)
		defer a.end()
		var list images.List
		a.read(images.Path, &list)
		given := map[string]bool{}
		for _, name := range args {
			given[name] = true
		}
		for _, i := range list.Images {
			for _, name := range i.Names {
				if !given[name] {
					all = append(all, name)
				}
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// asking is a completion in progress. Without an answer there is nothing to complete.
type asking struct {
	ctx       context.Context
	end       context.CancelFunc
	server    *local.Server // nil: it is not known where
	namespace string
}

func askServer(cmd *cobra.Command, place *local.Place, namespace *string) asking {
	_ = commandline.FromEnvironment(cmd, os.Environ()) // which cobra does not do here; a wrong variable completes nothing
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	a := asking{ctx: ctx, end: cancel}
	if server, err := place.Open(); err == nil {
		a.server, a.namespace = server, server.Namespace
	}
	if namespace != nil && *namespace != "" {
		a.namespace = *namespace
	}
	return a
}

func (a asking) read(path string, into any) {
	if a.server != nil {
		_ = a.server.JSON(a.ctx, path, into) // into stays empty
	}
}

// names returns the names of all objects of a kind, each with the prefix.
func (a asking) names(k kind, prefix string) (all []string) {
	path := k.path + "/" + k.resource
	if !k.cluster {
		path = k.path + "/namespaces/" + url.PathEscape(a.namespace) + "/" + k.resource
	}
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		} `json:"items"`
	}
	a.read(path, &list)
	for _, item := range list.Items {
		all = append(all, prefix+item.Metadata.Name)
	}
	return all
}
