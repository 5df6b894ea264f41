package execution

import (
	"coppice/agent/internal/account"
	"coppice/agent/internal/guest"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// buildEnvironment layers the environment of resume, what belongs to the user, and the request's own on top. An
// image that sets HOME or USER itself keeps it, as with other container runtimes.
func buildEnvironment(settings guest.Settings, who account.Identity, own map[string]string) []string {
	merged := map[string]string{"PATH": defaultPath, "HOME": who.Home, "USER": who.Name}
	for name, value := range settings.Env {
		merged[name] = value
	}
	for name, value := range own {
		merged[name] = value
	}
	environment := make([]string, 0, len(merged))
	for name, value := range merged {
		environment = append(environment, name+"="+value)
	}
	return environment
}
