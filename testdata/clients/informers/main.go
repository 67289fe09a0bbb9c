// Informers tests client-go's shared informers with every served kind, as external controllers use them: typed (in JSON
// and protobuf), dynamic and metadata-only.
//
//	informers KUBECONFIG BACK
//
// It waits until every informer has synced, then creates, changes and deletes one object of each kind, and waits for
// the events of all informers. Then it prints "again" and waits for the file BACK, which the caller creates after a
// restart of the server. It repeats the round with the same informers, and prints "done".
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"monopod/testdata/clients/samples"

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

// roundTime is the timeout of one round over all kinds.
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
	kinds, err := samples.Served(cfg)
	if err != nil {
		return err
	}
	all, err := start(ctx, cfg, kinds)
	if err != nil {
		return err
	}
	writer, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if err := all.round(ctx, writer, kinds, "one"); err != nil {
		return fmt.Errorf("first round: %w", err)
	}
	fmt.Println("again")
	for _, err := os.Stat(os.Args[2]); err != nil; _, err = os.Stat(os.Args[2]) {
		time.Sleep(50 * time.Millisecond)
	}
	if err := all.round(ctx, writer, kinds, "two"); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	fmt.Println("done")
	return nil
}

// configOf reads the kubeconfig at path. Each connection reads the file again, because a restarted server may have
// another port.
func configOf(path string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // no client-side rate limit
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

// start creates four informers for each kind and waits until they have synced. Kinds without types in client-go have
// two informers.
func start(ctx context.Context, cfg *rest.Config, kinds []samples.Sample) (watched, error) {
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
	for _, sample := range kinds {
		gvr := sample.GVR
		forms := map[string]cache.SharedIndexInformer{
			"dynamic": anyKind.ForResource(gvr).Informer(), "metadata": metas.ForResource(gvr).Informer(),
		}
		if samples.InClientGo(gvr.Group) {
			typedKind, err := shared.ForResource(gvr)
			if err != nil {
				return nil, err
			}
			binaryKind, err := binaries.ForResource(gvr)
			if err != nil {
				return nil, err
			}
			forms["typed"], forms["protobuf"] = typedKind.Informer(), binaryKind.Informer()
		}
		for how, informer := range forms {
			if err := all.add(sample, how, informer); err != nil {
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
