/** Calls about network policies as code. */
import { toLiteral, toPython, type writeSnippet } from '../../ui/snippets.ts';
import { toNetworkOption, type Rules } from './policy-draft.ts';

type Call = Parameters<typeof writeSnippet>[0];

export const LIST_PROFILES: Call = {
  method: 'GET',
  path: '/v1/network-profiles',
  typescript:
    'for (const { name, description } of await client.networkProfiles()) console.log(name, description);',
  python: 'for profile in client.network_profiles():\n    print(profile.name, profile.description)',
};

/** A create with rules, or with the profile of a name. */
export function createWithPolicyCall(policy: Rules | string): Call {
  const image = 'coppice/base:1';
  if (typeof policy === 'string')
    return {
      method: 'POST',
      path: '/v1/runs',
      body: { image, network_profile: policy },
      typescript: `const sandbox = await client.sandboxes.create(${toLiteral({ image, networkProfile: policy })});`,
      python: `sandbox = client.sandboxes.create(image=${toPython(image)}, network_profile=${toPython(policy)})`,
    };
  const network = toNetworkOption(policy);
  return {
    method: 'POST',
    path: '/v1/runs',
    body: { image, network },
    typescript: `const sandbox = await client.sandboxes.create(${toLiteral({ image, network })});`,
    python: `sandbox = client.sandboxes.create(image=${toPython(image)}, network=${toPython(network)})`,
  };
}

export function setNetworkCall(id: string, policy: Rules | string): Call {
  const network = typeof policy === 'string' ? policy : toNetworkOption(policy);
  return {
    method: 'PUT',
    path: `${runPath(id)}/network`,
    body: typeof policy === 'string' ? { network_profile: policy } : { network },
    typescript: `${getTypescript(id)}\nawait sandbox?.setNetwork(${toLiteral(network)});`,
    python: `${getPython(id)}\nsandbox.set_network(${toPython(network)})`,
  };
}

export function getNetworkCall(id: string): Call {
  return {
    method: 'GET',
    path: `${runPath(id)}/network`,
    typescript: `${getTypescript(id)}\nconst { network, counters } = (await sandbox?.network()) ?? {};`,
    python: `${getPython(id)}\nprint(sandbox.network().counters)`,
  };
}

/** `names` are services with the name of a secret; undefined stands for a value, which is a variable here. */
export function setCredentialsCall(id: string, names: Readonly<Record<string, string | undefined>>): Call {
  const entries = Object.entries(names);
  const wire = entries.map(([service, secret]) => [
    service,
    secret === undefined ? variableOf(service) : { secret },
  ]);
  const write = (literal: (value: unknown) => string, read: (name: string) => string): string =>
    entries
      .map(([service, secret]) => {
        const value = secret === undefined ? read(variableOf(service)) : literal({ secret });
        return `${literal(service)}: ${value}`;
      })
      .join(', ');
  const typescript = write(toLiteral, (name) => `process.env.${name} ?? ''`);
  const python = write(toPython, (name) => `os.environ[${toPython(name)}]`);
  return {
    method: 'PUT',
    path: `${runPath(id)}/credentials`,
    body: { credentials: Object.fromEntries(wire) },
    typescript: `${getTypescript(id)}\nawait sandbox?.setCredentials({ credentials: { ${typescript} } });`,
    python: `${getPython(id)}\nsandbox.set_credentials(credentials={${python}})`,
  };
}

function variableOf(service: string): string {
  return `${service.toUpperCase().replaceAll('-', '_')}_API_KEY`;
}

function runPath(id: string): string {
  return `/v1/runs/${encodeURIComponent(id)}`;
}

function getTypescript(id: string): string {
  return `const sandbox = await client.sandboxes.get(${toLiteral(id)});`;
}

function getPython(id: string): string {
  return `sandbox = client.sandboxes.get(${toPython(id)})`;
}
