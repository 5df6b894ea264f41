/** Names of image registries: `host` or `host:port`, the part before the first slash of a reference. */
import { AppError } from '../errors.ts';

/** Images such as `coppice/base:1` are built at set-up and never fetched. No host can have this name: it has no dot. */
export const BUILTIN_REGISTRY = 'coppice';
/** Images such as `local/app:1` are imported on the server by its operator, and never fetched either. */
export const LOCAL_REGISTRY = 'local';
/** Images such as `built/app:1` were built from steps by the organization that they belong to. */
export const BUILT_REGISTRY = 'built';
export const DEFAULT_REGISTRY = 'docker.io';

const HUB_ALIASES: ReadonlySet<string> = new Set(['index.docker.io', 'registry-1.docker.io']);
const HOST_LABEL = '[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?';
const REGISTRY = new RegExp(
  String.raw`^(?:${HOST_LABEL}(?:\.${HOST_LABEL})*|\[[0-9a-fA-F:]{2,45}\])(?::[0-9]{1,5})?$`,
  'u',
);
const MAX_REGISTRY_LENGTH = 255;
const MAX_PORT = 65_535;

/** Whether the first part of a reference names a registry, by Docker's rule; else it is part of the repository. */
export function namesRegistry(first: string): boolean {
  return /[.:]/u.test(first) || first.toLowerCase() === 'localhost';
}

/** Returns the canonical name of a registry: in lower case, and one name for the several of Docker Hub. */
export function canonicalRegistry(host: string): string {
  const lower = host.toLowerCase();
  return HUB_ALIASES.has(lower) ? DEFAULT_REGISTRY : lower;
}

export function isRegistryHost(registry: string): boolean {
  const port = /:(\d+)$/u.exec(registry)?.[1];
  const hasGoodPort = port === undefined || (Number(port) > 0 && Number(port) <= MAX_PORT);
  return REGISTRY.test(registry) && hasGoodPort;
}

/** Returns the canonical name of a registry. Throws `invalid_request` if no image reference could name it. */
export function parseRegistryName(text: string): string {
  if (text.length > MAX_REGISTRY_LENGTH) {
    throw new AppError('invalid_request', `registry: longer than ${MAX_REGISTRY_LENGTH} characters`);
  }
  // The message does not show the text: the part before "@" may be a password.
  if (text.includes('@')) {
    throw new AppError(
      'invalid_request',
      'registry: write only "host" or "host:port", such as ghcr.io; user and password belong in the body',
    );
  }
  if (text.includes('/')) {
    throw refuse(text, 'it must not be a URL or an image; write only "host" or "host:port", such as ghcr.io');
  }
  if (text.toLowerCase() === BUILTIN_REGISTRY) {
    throw refuse(text, 'the images of this name are built in and need no credentials');
  }
  if (!namesRegistry(text)) {
    throw refuse(text, 'a registry has a dot or a port in its name, or is localhost, such as ghcr.io');
  }
  if (!isRegistryHost(text)) throw refuse(text, 'write "host" or "host:port", such as ghcr.io');
  return canonicalRegistry(text);
}

function refuse(text: string, reason: string): AppError {
  const MAX_SHOWN = 80;
  return new AppError('invalid_request', `registry: ${JSON.stringify(text.slice(0, MAX_SHOWN))}: ${reason}`);
}
