package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"monopod/agent/node/check"
	"monopod/agent/runtime/containerd"
)

// installTimeout is the default of --timeout, and the minimum for a previous program that is restored.
const installTimeout = 2 * time.Minute

// settle is the time for which a new program must stay healthy.
const settle = 3 * time.Second

type installOptions struct {
	installer
	force, keepPods, purge bool
}

// installCommands returns the commands; dataDir is the default of --data-dir.
func installCommands(dataDir string) []*cobra.Command {
	var all []*cobra.Command
	for _, make := range []func(*installOptions) *cobra.Command{install, uninstall, upgrade, rollback} {
		c := &installOptions{installer: installer{dataDir: dataDir, clock: clock.RealClock{}, settle: settle}}
		cmd := make(c)
		cmd.GroupID = AsService
		cmd.Flags().StringVar(&c.root, "root", "/", "Folder that stands for the machine's root, for tests.")
		_ = cmd.Flags().MarkHidden("root") // the flag exists
		all = append(all, cmd)
	}
	return all
}

// prepare completes the installer.
func (c *installOptions) prepare(cmd *cobra.Command) (err error) {
	c.out = cmd.OutOrStdout()
	if c.service, err = detectService(c.root); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("monopod %s needs root: use sudo", cmd.Name())
	}
	return nil
}

func (c *installOptions) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&c.timeout, "timeout", installTimeout, "Maximum time until the API and the node are ready.")
}

func install(c *installOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install [flags] [-- FLAGS OF SERVE | -- join URL FLAGS]",
		Short: "Install this program as a service that starts with the machine, and start it",
		Long: "install checks the machine, copies this program, writes a service for systemd or OpenRC that runs serve\n" +
			"with the flags after --, enables and starts it, and waits until the API and the node are ready. It\n" +
			"changes only what differs: run it again with other flags to change them. With join after --, the machine\n" +
			"joins another machine's server, and the service runs monopod join.",
		Example: "  monopod install\n  monopod install -- --listen=0.0.0.0:6443 --tls-san=box.example.com\n" +
			"  monopod install -- join https://box.example.com:6443 --token=ID.SECRET --ca-hash=sha256:HEX",
		RunE: func(cmd *cobra.Command, flags []string) error {
			if err := c.prepare(cmd); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			for _, flag := range flags {
				if strings.ContainsAny(flag, " \t\n\"'\\$%") {
					return fmt.Errorf(
						"a flag of a service cannot contain spaces, quotes, $ and %%, got %q: set it in a file and pass --config=FILE",
						flag)
				}
			}
			if c.verb = serveVerb; len(flags) > 0 && flags[0] == joinVerb {
				c.verb, flags = joinVerb, flags[1:]
			}
			if err := c.sameVerb(); err != nil {
				return err
			}
			if err := c.check(cmd.Context(), flags); err != nil && !c.force {
				return err
			}
			return c.install(cmd.Context(), self, flags)
		},
	}
	cmd.Flags().StringVar(&c.program, "program", "/usr/local/bin/monopod", "Where the program is installed.")
	cmd.Flags().BoolVar(&c.force, "force", false, "Install it even if monopod check finds something missing.")
	c.timeoutFlag(cmd)
	return cmd
}

// sameVerb refuses to make a server of a machine that has joined, or the reverse: its pods would be lost.
func (c *installOptions) sameVerb() error {
	installed := c.installer
	if _, err := installed.installed(); err != nil || installed.verb == c.verb {
		return nil
	}
	if c.verb == serveVerb {
		return errors.New("the service of this machine runs monopod join: pass join after -- to change its flags, " +
			"or run monopod uninstall --purge first")
	}
	return errors.New("the service of this machine runs monopod serve: run monopod uninstall --purge first")
}

// flagValue returns the last value of a flag of serve, written as --name=value or as two words, or its default.
func flagValue(flags []string, name, value string) string {
	for i, flag := range flags {
		if after, ok := strings.CutPrefix(flag, name+"="); ok {
			value = after
		} else if flag == name && i+1 < len(flags) {
			value = flags[i+1]
		}
	}
	return value
}

// check fails if the machine lacks something that these flags of serve need.
func (c *installOptions) check(ctx context.Context, flags []string) error {
	cfg := check.Config{
		DataDir: c.at(flagValue(flags, "--data-dir", c.dataDir)), Runtime: flagValue(flags, "--runtime", "containerd"),
		Options: containerd.Options{Containerd: flagValue(flags, "--containerd", "auto")},
		Clock:   check.Clock{Now: c.clock.Now()},
	}
	var missing []string
	for _, r := range check.Of(check.Collect(ctx, cfg)) {
		if r.Verdict == check.Missing {
			missing = append(missing, fmt.Sprintf("%s: %s; %s", r.Name, r.Found, r.Remedy))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("the machine lacks something (--force installs monopod nevertheless):\n  " +
		strings.Join(missing, "\n  "))
}

func uninstall(c *installOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service, end its pods, and remove service and program; the data stay",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.prepare(cmd); err != nil {
				return err
			}
			return c.uninstall(cmd.Context(), c.keepPods, c.purge)
		},
	}
	cmd.Flags().BoolVar(&c.keepPods, "keep-pods", false, "Leave the pods running.")
	cmd.Flags().BoolVar(&c.purge, "purge", false,
		"Also remove the data folder. A machine that has joined leaves the cluster.")
	return cmd
}

func upgrade(c *installOptions) *cobra.Command {
	var d download
	cmd := &cobra.Command{
		Use:   "upgrade FILE|URL",
		Short: "Replace the installed program by the one in FILE or at URL, and return to the previous one if that fails",
		Long: "upgrade asks the new program for its version and whether it accepts the flags of the service, saves a\n" +
			"snapshot of the state, replaces the program, restarts the service, and waits until API and node are\n" +
			"ready, and stay ready. Otherwise it restores the previous program, with the snapshot if that program can\n" +
			"no longer read the state. Pods keep running meanwhile.\n\n" +
			"A FILE is trusted as it is. A URL (https:// or file://) names a program of a release, or with a slash at\n" +
			"its end the release's folder. Its checksum must be in the SHA256SUMS beside it, and SHA256SUMS.minisig must\n" +
			"be its signature by the key inside this program (monopod version), or by --key.",
		Example: "  monopod upgrade ./monopod.new\n  monopod upgrade https://example.org/monopod/v1.2.0/\n" +
			"  monopod upgrade file:///media/usb/monopod-linux-arm64",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.prepare(cmd); err != nil {
				return err
			}
			if strings.Contains(args[0], "://") {
				return c.upgradeFrom(cmd.Context(), args[0], d)
			}
			return c.upgrade(cmd.Context(), args[0])
		},
	}
	c.timeoutFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&d.key, "key", "", "Public key of minisign that has signed the release, or a file with it. "+
		"Empty: the one inside this program.")
	f.BoolVar(&d.unsigned, "insecure-skip-signature", false,
		"Do not check the signature of the release: whoever can change the files at URL becomes root on this machine.")
	f.DurationVar(&d.timeout, "download-timeout", 30*time.Minute, "Maximum time of the download.")
	return cmd
}

func rollback(c *installOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Return to the program before the last upgrade",
		Long:  "rollback upgrades to the program that the last upgrade replaced. A second rollback returns to the newer one.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.prepare(cmd); err != nil {
				return err
			}
			return c.rollback(cmd.Context())
		},
	}
	c.timeoutFlag(cmd)
	return cmd
}
