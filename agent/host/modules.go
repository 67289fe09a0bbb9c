package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// modules are the kernel's modules that pods use: for their images, their network, and limits of their bandwidth.
var modules = []string{"overlay",
	"bridge", "veth", "nf_tables", "nft_chain_nat", "nft_ct", "nft_fib_inet", "nft_masq", "nft_nat", "nft_numgen",
	"nft_reject_inet", "nft_reject_ipv4", "nft_reject_ipv6", "nft_reject_bridge", "nft_meta_bridge", "nf_conntrack_bridge",
	"nf_conntrack_netlink",
	"ifb", "sch_ingress", "sch_tbf", "cls_u32", "act_mirred"}

// LoadModules loads the kernel's modules that pods use, if the machine below root has no modprobe, which the kernel
// would call. It needs no program for that. A module that the machine does not have may be part of the kernel.
func LoadModules(root string) error { return loadModules(root, modules) }

// LoadModule is LoadModules for one module that is not always needed, like wireguard.
func LoadModule(root, name string) error { return loadModules(root, []string{name}) }

func loadModules(root string, modules []string) error {
	var uname unix.Utsname
	modprobe, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/modprobe"))
	if err != nil {
		return nil // the kernel has no modules
	}
	program := strings.TrimSpace(string(modprobe))
	if _, err := os.Stat(filepath.Join(root, program)); err == nil && program != "" {
		return nil
	}
	if err := unix.Uname(&uname); err != nil {
		return err
	}
	dir := filepath.Join(root, "lib/modules", unix.ByteSliceToString(uname.Release[:]))
	paths, err := dependencies(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil // there are none
	}
	var errs []error
	for _, module := range modules {
		for _, path := range paths[module] {
			errs = append(errs, loadModule(filepath.Join(dir, path)))
		}
	}
	return errors.Join(errs...)
}

// dependencies returns for each module of a modules.dep the files to load, in their order.
func dependencies(path string) (map[string][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	paths := map[string][]string{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		file, needs, _ := strings.Cut(lines.Text(), ":")
		files := append([]string{file}, strings.Fields(needs)...)
		slices.Reverse(files)
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		paths[strings.ReplaceAll(name, "-", "_")] = files
	}
	return paths, lines.Err()
}

// loadModule does nothing if the module is already loaded.
func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if filepath.Ext(path) != ".ko" {
		flags = unix.MODULE_INIT_COMPRESSED_FILE
	}
	if err := unix.FinitModule(int(f.Fd()), "", flags); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
