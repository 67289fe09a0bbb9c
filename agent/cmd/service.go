package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// service describes how an init system runs monopod.
type service struct {
	name string      // of the init system
	file string      // the unit or script of the service
	deb  string      // the unit of the Debian package, if there is one for this init system
	mode os.FileMode // of file
	// render returns the content of the file; parse reads the command from it.
	render func(command []string) string
	parse  func(content string) []string

	reload, enable, restart, stop, disable, active []string // commands; an empty one does nothing
	log                                            string   // the command that shows the log
}

// unit is the unit of docs/service.md.
const unit = `[Unit]
Description=Monopod
After=network-online.target containerd.service dbus.service
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%s
Restart=always
RestartSec=2
# A large state is read whole before it is used.
TimeoutStartSec=5min
# Pods keep running when Monopod stops, is updated or killed.
KillMode=process
TimeoutStopSec=30
# Monopod manages the cgroups below the unit itself, with all controllers.
Delegate=yes
# For Monopod's own containerd and its shims, which belong to the unit.
TasksMax=infinity
LimitNOFILE=1048576
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
`

func systemd() *service {
	const exec = "ExecStart="
	return &service{
		name: "systemd", file: "/etc/systemd/system/monopod.service", mode: 0o644,
		deb:    "/lib/systemd/system/monopod.service",
		render: func(command []string) string { return fmt.Sprintf(unit, strings.Join(command, " ")) },
		parse:  func(content string) []string { return strings.Fields(after(content, exec)) },
		reload: []string{"systemctl", "daemon-reload"}, enable: []string{"systemctl", "enable", "monopod"},
		restart: []string{"systemctl", "restart", "monopod"}, stop: []string{"systemctl", "stop", "monopod"},
		disable: []string{"systemctl", "disable", "monopod"},
		active:  []string{"systemctl", "is-active", "--quiet", "monopod"}, log: "journalctl -u monopod",
	}
}

// script is the service of OpenRC. Its supervisor restarts monopod. Pods are not its child processes, and keep running.
const script = `#!/sbin/openrc-run
# shellcheck shell=sh disable=SC2034
description="Monopod"
supervisor=supervise-daemon
command="%s"
command_args="%s"
error_log=/var/log/monopod.log
respawn_delay=2
respawn_max=0
retry="TERM/30/KILL/5"
rc_ulimit="-n 1048576"

depend() {
	use net dns logger
	after containerd
}
`

func openrc() *service {
	return &service{
		name: "OpenRC", file: "/etc/init.d/monopod", mode: 0o755,
		render: func(command []string) string {
			return fmt.Sprintf(script, command[0], strings.Join(command[1:], " "))
		},
		parse: func(content string) []string {
			program, args := after(content, "command="), after(content, "command_args=")
			return strings.Fields(strings.Trim(program, `"`) + " " + strings.Trim(args, `"`))
		},
		enable: []string{"rc-update", "add", "monopod", "default"}, restart: []string{"rc-service", "monopod", "restart"},
		stop:    []string{"rc-service", "--ifstarted", "monopod", "stop"},
		disable: []string{"rc-update", "del", "monopod", "default"},
		active:  []string{"rc-service", "--quiet", "monopod", "status"}, log: "tail /var/log/monopod.log",
	}
}

// after returns the rest of the first line with the prefix.
func after(content, prefix string) string {
	for line := range strings.Lines(content) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// detectService returns the service of the machine below root.
func detectService(root string) (*service, error) {
	if _, err := os.Stat(filepath.Join(root, "run/systemd/system")); err == nil {
		return systemd(), nil
	}
	if _, err := os.Stat(filepath.Join(root, "sbin/openrc-run")); err == nil {
		return openrc(), nil
	}
	return nil, errors.New("the machine runs neither systemd nor OpenRC: " +
		"start monopod serve with the service manager of the machine, " +
		"for example runit or an inittab (docs/service.md)")
}

// runProgram runs a command of the init system.
func runProgram(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return nil
	}
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s did not return in time", strings.Join(command, " "))
	case err != nil:
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
