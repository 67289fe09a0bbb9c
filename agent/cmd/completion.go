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
	name          string // as users type it
	path          string // of its group and version
	resource      string
	clusterScoped bool
	logs          bool // its pods have logs
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

// completionFunc is cobra's ValidArgsFunction.
type completionFunc = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeObjects completes one KIND/NAME; with pods, also the bare name of a pod, and only kinds whose pods have logs.
func completeObjects(place *local.Place, namespace *string, pods bool) completionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a := newCompleter(cmd, place, namespace)
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

// completeImages completes names of the node's images.
func completeImages(c *imagesOptions) completionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (all []string, _ cobra.ShellCompDirective) {
		a := newCompleter(cmd, &c.Place, nil)
		defer a.end()
		var list images.List
		a.read(c.path(), &list)
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

// completer asks the server for names. If a request fails, it completes nothing.
type completer struct {
	ctx       context.Context
	end       context.CancelFunc
	server    *local.Server // nil: not known
	namespace string
}

func newCompleter(cmd *cobra.Command, place *local.Place, namespace *string) completer {
	_ = commandline.FromEnvironment(cmd, os.Environ()) // cobra does not call PersistentPreRunE here
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	a := completer{ctx: ctx, end: cancel}
	if server, err := place.Open(); err == nil {
		a.server, a.namespace = server, server.Namespace
	}
	if namespace != nil && *namespace != "" {
		a.namespace = *namespace
	}
	return a
}

func (a completer) read(path string, into any) {
	if a.server != nil {
		_ = a.server.JSON(a.ctx, path, into) // after an error into is empty
	}
}

// names returns the names of all objects of a kind, each with the prefix.
func (a completer) names(k kind, prefix string) (all []string) {
	path := k.path + "/" + k.resource
	if !k.clusterScoped {
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
