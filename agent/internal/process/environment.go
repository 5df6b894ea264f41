package process

import (
	"coppice/agent/internal/account"
	"coppice/agent/internal/guest"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// buildEnvironment merges three layers, from the bottom: defaults and the user's variables, the environment of resume,
// the request's own. An image that sets HOME or USER itself keeps it, as with other container runtimes.
func buildEnvironment(settings guest.Settings, who account.Identity, defaults, own map[string]string) map[string]string {
	merged := map[string]string{"PATH": defaultPath, "HOME": who.Home, "USER": who.Name}
	for _, layer := range []map[string]string{defaults, settings.Env, own} {
		for name, value := range layer {
			merged[name] = value
		}
	}
	return merged
}

func encodeEnvironment(variables map[string]string) []string {
	encoded := make([]string, 0, len(variables))
	for name, value := range variables {
		encoded = append(encoded, name+"="+value)
	}
	return encoded
}
