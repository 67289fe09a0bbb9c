// Package addon enables and disables addons: sets of objects that are built into the program or come from files.
//
// Enable checks all objects with a dry run, writes the inventory, then applies the objects in an order in which they
// can exist. The inventory is a ConfigMap that names each object and its UID, so that Disable deletes what the addon
// created, and nothing else. The inventory is written before the objects: after a crash it names at least what exists.
//
// An object belongs to the addon if it has the recorded UID or, as long as none is recorded, the addon's label.
package addon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/apiserver/kit/local"
)

const (
	// Label is the label with the addon's name, of the inventory and of each object that the addon created.
	Label = "monopod.io/addon"
	// manager is the field manager of server-side apply.
	manager = "monopod-addon"
	// maxListed is the number of objects that an error names.
	maxListed = 8
	// poll is the interval of requests while waiting.
	poll = 50 * time.Millisecond
	// rollback is the maximum time for deleting again what a failed Enable has created.
	rollback = 30 * time.Second
)

// Set is the objects of an addon, to be enabled.
type Set struct {
	Name    string
	Version string // empty: not known
	Source  string // where the manifests are from; empty: they are built in
	objects []object
}

// Options configure Enable and Disable.
type Options struct {
	Force         bool          // take over objects and fields that others own
	DeleteObjects bool          // delete objects of the addon's kinds and in its namespaces that others created
	Timeout       time.Duration // maximum time to wait for definitions, and for objects to be gone
}

// Addons are the addons of a server.
type Addons struct {
	api  api
	out  io.Writer // a line for each object
	warn io.Writer // warnings of the server
}

// Of returns the addons of a server. Each object is reported to out, warnings of the server to warn.
func Of(server *local.Server, out, warn io.Writer) *Addons {
	return &Addons{api: api{server: server}, out: out, warn: warn}
}

// checkName returns an error for a name that cannot be that of an addon.
func checkName(name string) error {
	if messages := validation.IsDNS1123Label(name); len(messages) > 0 {
		return fmt.Errorf("%q cannot be the name of an addon: %s", name, strings.Join(messages, ", "))
	}
	return nil
}

// until calls done until it returns true. what names what it waits for.
func until(ctx context.Context, timeout time.Duration, what string, done func() (bool, error)) error {
	over := time.After(timeout)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return fmt.Errorf("%s within %v; --timeout sets the time", what, timeout)
		case <-time.After(poll):
		}
	}
}

// refusal returns an error that begins with a sentence and lists at most maxListed things.
func refusal(sentence string, things []string) error {
	if more := len(things) - maxListed; more > 0 {
		things = append(things[:maxListed:maxListed], fmt.Sprintf("and %d more", more))
	}
	return errors.New(sentence + ":\n  " + strings.Join(things, "\n  "))
}
