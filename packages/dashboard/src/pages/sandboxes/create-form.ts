/** The form of a new sandbox as data, and what it asks the service for. */
import type { CreateOptions, SecretReference } from '../../../../sdk/src/index.ts';
import { toLiteral, toPythonArguments } from '../../ui/snippets.ts';

export interface CreateForm {
  image: string;
  name: string;
  vcpus: string;
  memMiB: string;
  diskMiB: string;
  /** Idle time in seconds. */
  timeout: string;
  autoHibernate: boolean;
  /** Name of a persistent disk; empty for none. */
  disk: string;
  cwd: string;
  labels: readonly { name: string; value: string }[];
  env: readonly { name: string; value: string }[];
  /** `profile:<name>`, `rules`, or empty for no restriction. */
  network: string;
  /** One rule on each line. */
  allow: string;
  deny: string;
  credentials: readonly CredentialChoice[];
}

export interface CredentialChoice {
  service: string;
  /** Name of a stored secret; empty if `value` is the secret itself. */
  secret: string;
  value: string;
}

export const EMPTY_FORM: CreateForm = {
  image: 'coppice/base:1',
  name: '',
  vcpus: '1',
  memMiB: '1024',
  diskMiB: '4096',
  timeout: '300',
  autoHibernate: false,
  disk: '',
  cwd: '',
  labels: [],
  env: [],
  network: '',
  allow: '',
  deny: '',
  credentials: [],
};

/** Sizes that fit most uses: label, vCPUs, MiB. */
export const SIZES: readonly (readonly [label: string, vcpus: number, memMiB: number])[] = [
  ['Small', 1, 512],
  ['Standard', 1, 1024],
  ['Large', 2, 4096],
  ['Huge', 4, 8192],
];

/** Returns the options of the create. The service checks them, and names the field that is wrong. */
export function toCreateOptions(form: CreateForm): CreateOptions {
  return {
    image: form.image.trim(),
    name: form.name.trim() || undefined,
    vcpus: toNumber(form.vcpus),
    memMiB: toNumber(form.memMiB),
    diskMiB: toNumber(form.diskMiB),
    timeout: toNumber(form.timeout),
    autoHibernate: form.autoHibernate || undefined,
    disk: form.disk || undefined,
    cwd: form.cwd.trim() || undefined,
    labels: toRecord(form.labels),
    env: toRecord(form.env),
    ...toNetwork(form),
    credentials: toCredentials(form.credentials),
  };
}

/** Returns the body of the request, without the values of secrets: it is shown and copied. */
export function toShownBody(form: CreateForm): Record<string, unknown> {
  const { memMiB, diskMiB, autoHibernate, networkProfile, ...rest } = toShownOptions(form);
  return dropUndefined({
    ...rest,
    mem_mib: memMiB,
    disk_mib: diskMiB,
    auto_hibernate: autoHibernate,
    network_profile: networkProfile,
  });
}

/** Returns the call as code. */
export function toSnippet(form: CreateForm) {
  const options = dropUndefined({ ...toShownOptions(form) });
  return {
    method: 'POST',
    path: '/v1/runs',
    body: toShownBody(form),
    typescript: `const sandbox = await client.sandboxes.create(${toLiteral(options)});`,
    python: `sandbox = client.sandboxes.create(${toPythonArguments(options)})`,
  };
}

function toShownOptions(form: CreateForm): CreateOptions {
  const options = toCreateOptions(form);
  const { credentials } = options;
  if (credentials === undefined) return options;
  const hidden = Object.entries(credentials).map(([service, secret]) => [
    service,
    typeof secret === 'string' ? '…' : secret,
  ]);
  return { ...options, credentials: Object.fromEntries(hidden) as Record<string, string> };
}

function toNetwork({ network, allow, deny }: CreateForm): Pick<CreateOptions, 'network' | 'networkProfile'> {
  if (network.startsWith('profile:')) return { networkProfile: network.slice('profile:'.length) };
  if (network !== 'rules') return {};
  return { network: dropUndefined({ allow: toLines(allow), deny: toLines(deny) }) };
}

function toLines(text: string): string[] | undefined {
  const lines = text
    .split(/[\n,]/u)
    .map((line) => line.trim())
    .filter(Boolean);
  return lines.length === 0 ? undefined : lines;
}

function toCredentials(
  choices: readonly CredentialChoice[],
): Record<string, string | SecretReference> | undefined {
  const entries = choices
    .filter(({ service }) => service.trim() !== '')
    .map(({ service, secret, value }) => [service.trim(), secret === '' ? value : { secret }] as const);
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

function toRecord(pairs: CreateForm['labels']): Record<string, string> | undefined {
  const entries = pairs.filter(({ name }) => name !== '').map(({ name, value }) => [name, value] as const);
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** An empty field stands for the default; one that is no number is sent as it cannot be, so that the service names it. */
function toNumber(text: string): number | undefined {
  return text.trim() === '' ? undefined : Number(text);
}

function dropUndefined<Value extends object>(value: Value): Value {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as Value;
}
