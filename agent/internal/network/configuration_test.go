package network

import (
	"strings"
	"testing"
)

func valid() Configuration {
	return Configuration{Interface: "eth0", Address: "10.202.0.6/30", Gateway: "10.202.0.5", Resolver: "10.202.0.1", MTU: 1500}
}

func TestParseAcceptsAPointToPointSubnet(t *testing.T) {
	plan, err := valid().Parse()
	if err != nil || plan.Address.Bits() != 30 || plan.Gateway.String() != "10.202.0.5" {
		t.Fatal(plan, err)
	}
}

func TestParseNamesTheFieldThatIsWrong(t *testing.T) {
	cases := map[string]func(*Configuration){
		"network.interface": func(c *Configuration) { c.Interface = "a-name-of-sixteen" },
		"network.address":   func(c *Configuration) { c.Address = "fe80::1/64" },
		"network.gateway":   func(c *Configuration) { c.Gateway = "10.203.0.5" },
		"network.resolver":  func(c *Configuration) { c.Resolver = "010.0.0.1" },
		"network.mtu":       func(c *Configuration) { c.MTU = 0 },
	}
	for field, spoil := range cases {
		c := valid()
		spoil(&c)
		if _, err := c.Parse(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
