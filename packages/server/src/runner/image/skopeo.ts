/** The one who talks to registries. skopeo verifies what it fetches against the digests in the manifest. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { BUILTIN_REGISTRY, formatImageReference, type ImageReference } from '@coppice/contract';
import { PLATFORM } from './image-config.ts';
import { translateRegistryFailure } from './registry-failure.ts';
import { buildRegistriesConf, type RegistrySettings } from './registries-conf.ts';
import { ProcessError, runProcess } from './run-process.ts';

/** Where an image is fetched from. `name` is shown in errors. */
export type ImageSource =
  | { transport: 'docker'; reference: ImageReference; name: string }
  | { transport: 'oci'; layoutPath: string; tag: string; name: string };

export interface SkopeoOptions {
  /** The skopeo program. */
  tool: string;
  /** For our own configuration and skopeo's home; must exist. */
  directory: string;
  registries: RegistrySettings;
}

export interface InspectOptions {
  timeoutMs: number;
  maxBytes: number;
  signal: AbortSignal;
}

export interface CopyOptions {
  /** Becomes a `dir:` layout: blobs under their hex digests, layers uncompressed. */
  targetPath: string;
  /** For skopeo's temporary files; must exist. */
  temporaryPath: string;
  timeoutMs: number;
  signal: AbortSignal;
}

const PROXY_VARIABLES = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy'];

export class Skopeo {
  readonly #tool: string;
  readonly #globalArgs: readonly string[];
  readonly #authFile: string;
  readonly #env: Readonly<Record<string, string>>;

  private constructor(options: SkopeoOptions) {
    const { directory } = options;
    this.#tool = options.tool;
    this.#authFile = join(directory, 'auth.json');
    // Nothing of /etc/containers is read: what a package or an operator's podman put there must not change our images.
    this.#globalArgs = [
      `--registries-conf=${join(directory, 'registries.conf')}`,
      `--registries.d=${join(directory, 'registries.d')}`,
      `--policy=${join(directory, 'policy.json')}`,
      `--override-os=${PLATFORM.os}`,
      `--override-arch=${PLATFORM.architecture}`,
    ];
    this.#env = { HOME: directory, XDG_RUNTIME_DIR: directory, ...proxyEnvironment() };
  }

  /** Writes the configuration that skopeo is run with. */
  static async open(options: SkopeoOptions): Promise<Skopeo> {
    const { directory } = options;
    await mkdir(join(directory, 'registries.d'), { recursive: true });
    await writeFile(join(directory, 'registries.conf'), buildRegistriesConf(options.registries));
    await writeFile(join(directory, 'policy.json'), '{"default":[{"type":"insecureAcceptAnything"}]}\n');
    await writeFile(join(directory, 'auth.json'), '{}\n', { mode: 0o600 });
    return new Skopeo(options);
  }

  /** The manifest as it is at its source, byte for byte, so that its digest can be taken. */
  async inspectRaw(source: ImageSource, options: InspectOptions): Promise<Buffer> {
    const args = ['inspect', '--raw', `--authfile=${this.#authFile}`, formatSource(source)];
    return this.#run(source, 'resolve', {
      args: [...this.#globalArgs, ...args],
      timeoutMs: options.timeoutMs,
      maxStdoutBytes: options.maxBytes,
      signal: options.signal,
    });
  }

  /** Copies one image for our platform. */
  async copy(source: ImageSource, options: CopyOptions): Promise<void> {
    const args = [
      'copy',
      '--quiet',
      '--dest-decompress',
      '--remove-signatures',
      `--src-authfile=${this.#authFile}`,
      formatSource(source),
      `dir:${options.targetPath}`,
    ];
    await this.#run(source, 'pull', {
      args: [...this.#globalArgs, `--tmpdir=${options.temporaryPath}`, ...args],
      timeoutMs: options.timeoutMs,
      maxStdoutBytes: 0,
      signal: options.signal,
    });
  }

  async #run(
    source: ImageSource,
    step: 'resolve' | 'pull',
    options: { args: string[]; timeoutMs: number; maxStdoutBytes: number; signal: AbortSignal },
  ): Promise<Buffer> {
    try {
      return await runProcess({ command: this.#tool, env: this.#env, ...options });
    } catch (error) {
      if (!(error instanceof ProcessError)) throw error;
      const registry = source.transport === 'docker' ? source.reference.registry : BUILTIN_REGISTRY;
      throw translateRegistryFailure({ image: source.name, registry, step, error });
    }
  }
}

/** With both a tag and a digest skopeo refuses: the digest decides. */
function formatSource(source: ImageSource): string {
  if (source.transport === 'oci')
    return `oci:${source.layoutPath}${source.tag === '' ? '' : `:${source.tag}`}`;
  const { tag: _, ...untagged } = source.reference;
  return `docker://${formatImageReference(untagged.digest === undefined ? source.reference : untagged)}`;
}

/** Whether any proxy is set; what it is not used for is no proxy. */
export function hasProxy(): boolean {
  return Object.keys(proxyEnvironment()).some((name) => name.toLowerCase() !== 'no_proxy');
}

/** Of the host's environment only what decides how the network is reached. */
function proxyEnvironment(): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of PROXY_VARIABLES) {
    const value = process.env[name];
    if (value !== undefined && value !== '') found[name] = value;
  }
  return found;
}
