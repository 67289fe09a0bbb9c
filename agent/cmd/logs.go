package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
)

type logsOptions struct {
	local.Place
	namespace, container string
	follow, previous     bool
	all, times           bool
	since                time.Duration
	tail                 int64
}

// logsCommand is `monopod logs`, which prints the logs of a pod, or of all pods of an owner. dataDir is the default
// of --data-dir.
func logsCommand(dataDir string) *cobra.Command {
	c := &logsOptions{Place: local.Place{DataDir: dataDir}}
	cmd := &cobra.Command{
		Use:     "logs POD|KIND/NAME",
		GroupID: Look,
		Short:   "Print the logs of a pod, or of all pods of a Deployment, Job, Service or other owner",
		Long: "logs prints what containers wrote. For an owner (a Deployment, ReplicaSet, StatefulSet, DaemonSet, Job,\n" +
			"CronJob, ReplicationController or Service) these are the logs of all of its pods, of a CronJob those of\n" +
			"its last Job; each line then begins with its pod and container. Without -c, it is the container that the\n" +
			"annotation kubectl.kubernetes.io/default-container names, or else the first one.",
		Example: "  monopod logs web-0 -f\n  monopod logs deploy/web --all-containers --since=10m\n" +
			"  monopod logs pod/db --previous --tail=50 -n shop",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args[0])
		},
	}
	cmd.ValidArgsFunction = completeObjects(&c.Place, &c.namespace, true)
	f := cmd.Flags()
	c.Flags(f)
	f.StringVarP(&c.namespace, "namespace", "n", "",
		"Namespace of the object (default that of the kubeconfig, or default).")
	f.StringVarP(&c.container, "container", "c", "", "Container, also an init or ephemeral one.")
	f.BoolVarP(&c.follow, "follow", "f", false, "Print new lines as they are written, until the containers end.")
	f.BoolVarP(&c.previous, "previous", "p", false,
		"Print the log of the previous instance of the container: that of the crash.")
	f.BoolVar(&c.all, "all-containers", false, "Print the logs of all containers, init containers first.")
	f.BoolVar(&c.times, "timestamps", false, "Begin each line with the time when it was written.")
	f.DurationVar(&c.since, "since", 0, "Maximum age of lines, for example 10m; 0: all.")
	f.Int64Var(&c.tail, "tail", -1, "Maximum number of last lines of each container; -1: all.")
	return cmd
}

func (c *logsOptions) run(cmd *cobra.Command, object string) error {
	if err := c.check(); err != nil {
		return err
	}
	server, err := c.Open()
	if err != nil {
		return err
	}
	if c.namespace == "" {
		c.namespace = server.Namespace
	}
	pods, err := findPods(cmd.Context(), server, c.namespace, object)
	if err != nil {
		return err
	}
	var streams []*stream
	out := &lineWriter{out: cmd.OutOrStdout()}
	for i := range pods {
		names, err := c.containers(&pods[i])
		if err != nil {
			return err
		}
		for _, name := range names {
			streams = append(streams, &stream{pod: &pods[i], container: name, out: out})
		}
	}
	for _, s := range streams {
		s.withPrefix = len(streams) > 1
	}
	return c.print(cmd, server, streams)
}

func (c *logsOptions) check() error {
	switch {
	case c.all && c.container != "":
		return errors.New("--container and --all-containers exclude each other: name one of them")
	case c.since < 0:
		return fmt.Errorf("--since must not be negative, got %v", c.since)
	case c.tail < -1:
		return fmt.Errorf("--tail must be -1 or more, got %d", c.tail)
	}
	return nil
}

// print prints the streams: one after the other, or, if they are followed, as they arrive.
func (c *logsOptions) print(cmd *cobra.Command, server *local.Server, streams []*stream) error {
	failed := 0
	var last error
	report := func(err error) {
		if err == nil || cmd.Context().Err() != nil { // after Ctrl-C
			return
		}
		failed++
		last = err
		if len(streams) > 1 {
			fmt.Fprintf(cmd.ErrOrStderr(), "monopod: %v\n", err)
		}
	}
	errs := make([]error, len(streams))
	if c.follow {
		var parts []func(context.Context)
		for i, s := range streams {
			parts = append(parts, func(ctx context.Context) { errs[i] = s.copy(ctx, server, c.query(s.container)) })
		}
		guard.Together(cmd.Context(), parts...)
	}
	for i, s := range streams {
		if !c.follow {
			errs[i] = s.copy(cmd.Context(), server, c.query(s.container))
		}
		report(errs[i])
	}
	if failed == len(streams) {
		return last
	}
	return nil
}

// query returns the parameters of a request for a container's log.
func (c *logsOptions) query(container string) url.Values {
	q := url.Values{"container": {container}}
	for name, is := range map[string]bool{"follow": c.follow, "previous": c.previous, "timestamps": c.times} {
		if is {
			q.Set(name, "true")
		}
	}
	if c.since > 0 {
		q.Set("sinceSeconds", strconv.FormatInt(max(int64(c.since/time.Second), 1), 10))
	}
	if c.tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(c.tail, 10))
	}
	return q
}

// defaultContainerAnnotation is kubectl's.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// containers returns the names of the containers of a pod whose logs to print.
func (c *logsOptions) containers(pod *corev1.Pod) ([]string, error) {
	var all []string
	for _, one := range pod.Spec.InitContainers {
		all = append(all, one.Name)
	}
	for _, one := range pod.Spec.Containers {
		all = append(all, one.Name)
	}
	for _, one := range pod.Spec.EphemeralContainers {
		all = append(all, one.Name)
	}
	switch {
	case c.all:
		return all, nil
	case c.container == "":
		name := pod.Annotations[defaultContainerAnnotation]
		if !slices.Contains(all, name) {
			name = pod.Spec.Containers[0].Name
		}
		return []string{name}, nil
	}
	if slices.Contains(all, c.container) {
		return []string{c.container}, nil
	}
	return nil, fmt.Errorf("pod %s/%s has no container %s: its containers are %s", pod.Namespace, pod.Name, c.container,
		strings.Join(all, ", "))
}
