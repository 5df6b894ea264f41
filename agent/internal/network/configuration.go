// Package network configures the guest's network. It uses ioctl: there is no ip(8) in the initramfs, and the image may
// not have one.
package network

import (
	"net/netip"
	"strings"

	"coppice/agent/internal/fault"
)

// Configuration is the "network" of resume.
type Configuration struct {
	Interface string `json:"interface"`
	Address   string `json:"address"`
	Gateway   string `json:"gateway"`
	Resolver  string `json:"resolver"`
	MTU       int    `json:"mtu"`
}

// Plan is a validated Configuration.
type Plan struct {
	Interface string
	Address   netip.Prefix
	Gateway   netip.Addr
	Resolver  netip.Addr
	MTU       int
}

const (
	// maxNameBytes is the kernel's IFNAMSIZ less the NUL.
	maxNameBytes = 15
	// minMTU is the minimum that IPv4 demands; maxMTU is the size of the largest packet.
	minMTU = 68
	maxMTU = 65535
)

// Parse checks each field. It accepts IPv4 only: the guest has no IPv6 route.
func (c Configuration) Parse() (Plan, error) {
	plan := Plan{Interface: c.Interface, MTU: c.MTU}
	if c.Interface == "" || len(c.Interface) > maxNameBytes || strings.ContainsAny(c.Interface, "/ \x00\n\t:") {
		return Plan{}, fault.Invalid("network.interface: %q is not an interface name", c.Interface)
	}
	prefix, err := netip.ParsePrefix(c.Address)
	if err != nil || !prefix.Addr().Is4() {
		return Plan{}, fault.Invalid("network.address: %q is not an IPv4 address with a prefix length, such as 10.0.0.2/30", c.Address)
	}
	plan.Address = prefix
	if plan.Gateway, err = parseAddress("gateway", c.Gateway); err != nil {
		return Plan{}, err
	}
	if plan.Resolver, err = parseAddress("resolver", c.Resolver); err != nil {
		return Plan{}, err
	}
	if !prefix.Masked().Contains(plan.Gateway) {
		return Plan{}, fault.Invalid("network.gateway: %s is not in %s", plan.Gateway, prefix.Masked())
	}
	if c.MTU < minMTU || c.MTU > maxMTU {
		return Plan{}, fault.Invalid("network.mtu: must be from %d to %d", minMTU, maxMTU)
	}
	return plan, nil
}

func parseAddress(field, text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil || !address.Is4() {
		return netip.Addr{}, fault.Invalid("network.%s: %q is not an IPv4 address", field, text)
	}
	return address, nil
}
