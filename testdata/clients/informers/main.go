// Informers is a client of monopod as controllers elsewhere are: client-go's
// shared informers with their defaults, typed (in JSON and as protobuf), dynamic
// and of metadata alone, over every kind that is served.
//
//	informers KUBECONFIG BACK
//
// It waits until every informer has its first list, writes one object of each
// kind and sees it come, change and go. Then it prints "again" and waits for the
// file BACK, which says that the server was restarted meanwhile. It does the same
// once more, with the same informers, and prints "done".
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// roundTime bounds one round over all kinds.
const roundTime = 90 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return errors.New("usage: informers KUBECONFIG BACK")
	}
	cfg, err := configOf(os.Args[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := speakProtobuf(ctx, cfg); err != nil {
		return fmt.Errorf("protobuf: %w", err)
	}
	all, err := start(ctx, cfg)
	if err != nil {
		return err
	}
	writer, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if err := all.round(ctx, writer, "one"); err != nil {
		return fmt.Errorf("first round: %w", err)
	}
	fmt.Println("again")
	for _, err := os.Stat(os.Args[2]); err != nil; _, err = os.Stat(os.Args[2]) {
		time.Sleep(50 * time.Millisecond)
	}
	if err := all.round(ctx, writer, "two"); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	fmt.Println("done")
	return nil
}

// configOf reads the kubeconfig at path. The server may come back on another
// port, which then stands in the same file.
func configOf(path string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // the server has to keep up
	cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		now, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, err
		}
		at, err := url.Parse(now.Host)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, at.Host)
	}
	return cfg, nil
}

// kinds are what is served, each with an object to write: of it everything but
// the name, and a change to make.
var kinds = map[schema.GroupVersionResource]object{
	core("configmaps"):      {"data": object{"k": "v"}},
	core("secrets"):         {"stringData": object{"k": "v"}},
	core("serviceaccounts"): {},
	core("namespaces"):      {},
	core("nodes"):           {"spec": object{"unschedulable": true}},
	core("pods"):            {"spec": object{"nodeSelector": object{"no": "node"}, "containers": list{object{"name": "c", "image": "i"}}}},
	core("events"): {"reason": "Tested", "message": "m", "type": "Normal",
		"involvedObject": object{"kind": "Pod", "name": "x", "namespace": "default"}},
	{Group: "apps", Version: "v1", Resource: "replicasets"}: {"spec": object{
		"replicas": int64(0), "selector": object{"matchLabels": object{"app": "informed"}},
		"template": object{"metadata": object{"labels": object{"app": "informed"}},
			"spec": object{"containers": list{object{"name": "c", "image": "i"}}}}}},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}:        {"spec": object{"holderIdentity": "me"}},
	{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}: {"value": int64(7)},
}

type (
	object = map[string]any
	list   = []any
)

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

var kindNames = map[string]string{
	"configmaps": "ConfigMap", "secrets": "Secret", "serviceaccounts": "ServiceAccount", "namespaces": "Namespace",
	"nodes": "Node", "pods": "Pod", "events": "Event", "replicasets": "ReplicaSet", "leases": "Lease", "priorityclasses": "PriorityClass",
}

func namespaceOf(gvr schema.GroupVersionResource) string {
	switch gvr.Resource {
	case "namespaces", "nodes", "priorityclasses":
		return ""
	}
	return "default"
}

// body is the object of a kind by the name.
func body(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: object{}}
	for field, value := range kinds[gvr] {
		u.Object[field] = value
	}
	u = u.DeepCopy()
	u.SetGroupVersionKind(gvr.GroupVersion().WithKind(kindNames[gvr.Resource]))
	u.SetName(name)
	u.SetNamespace(namespaceOf(gvr))
	return u
}

// start makes four informers for each kind and waits for their first lists.
func start(ctx context.Context, cfg *rest.Config) (watched, error) {
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	binary, err := kubernetes.NewForConfig(asProtobuf(cfg))
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	shared := informers.NewSharedInformerFactory(typed, 0)
	binaries := informers.NewSharedInformerFactory(binary, 0)
	anyKind := dynamicinformer.NewDynamicSharedInformerFactory(untyped, 0)
	metas := metadatainformer.NewSharedInformerFactory(meta, 0)
	all := watched{}
	for gvr := range kinds {
		typedKind, err := shared.ForResource(gvr)
		if err != nil {
			return nil, err
		}
		binaryKind, err := binaries.ForResource(gvr)
		if err != nil {
			return nil, err
		}
		for how, informer := range map[string]cache.SharedIndexInformer{
			"typed": typedKind.Informer(), "protobuf": binaryKind.Informer(),
			"dynamic": anyKind.ForResource(gvr).Informer(), "metadata": metas.ForResource(gvr).Informer(),
		} {
			if err := all.add(gvr, how, informer); err != nil {
				return nil, err
			}
		}
	}
	shared.Start(ctx.Done())
	binaries.Start(ctx.Done())
	anyKind.Start(ctx.Done())
	metas.Start(ctx.Done())
	return all, all.synced(ctx)
}
