/**
 * Environment and directory that the processes of each sandbox start with. Control keeps them, and adds them to each
 * request that starts a process: the guest, the runner and their files never hold them for later. From the bottom:
 *
 *     the image's ENV and the placeholders of granted credentials ─► env of the sandbox ─► env of the request
 *
 * A variable that a granted credential has is left out of the sandbox's: else a value set long before would hide the
 * placeholder, and the guest would send that value to the service. Only a request itself overrides a placeholder.
 */
import { AppError } from '@coppice/contract';
import { MAX_FRAME_BYTES } from '../../../lib/protocol/frames.ts';
import { Secret } from '../../../lib/secret.ts';
import type { GrantHolder, Grants } from '../../egress/grants.ts';
import type { SecretBox, SecretContext } from '../../secrets/secret-box.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import type { SandboxStore } from '../record/sandbox-store.ts';

export type Variables = Readonly<Record<string, string>>;

/** The part of a request about the start of its process. */
export interface Place {
  cwd?: string | undefined;
  env?: Variables | undefined;
}

/** Bytes of a head frame that are not of the request. */
const HEAD_BYTES = 1024;

export interface EnvironmentsParts {
  secrets: SecretBox;
  grants: Pick<Grants, 'listVariables'>;
  store: Pick<SandboxStore, 'findSealedEnv'>;
}

export class Environments {
  readonly #secrets: SecretBox;
  readonly #grants: EnvironmentsParts['grants'];
  readonly #store: EnvironmentsParts['store'];

  constructor({ secrets, grants, store }: EnvironmentsParts) {
    this.#secrets = secrets;
    this.#grants = grants;
    this.#store = store;
  }

  /** Seals variables for a sandbox or a snapshot, which alone can open them. Null if there are none. */
  seal(holder: GrantHolder, variables: Variables = {}): Buffer | null {
    if (Object.keys(variables).length === 0) return null;
    return this.#secrets.seal(new Secret(JSON.stringify(variables)), bindEnvironment(holder));
  }

  /** Reads the variables of a sandbox. */
  async read(sandbox: GrantHolder & Pick<SandboxRow, 'has_env'>): Promise<Variables> {
    if (!sandbox.has_env) return {};
    return this.open(sandbox, await this.#store.findSealedEnv(sandbox.id));
  }

  /** Opens variables that were sealed for a sandbox or a snapshot. */
  open(holder: GrantHolder, sealed: Buffer | null): Variables {
    if (sealed === null) return {};
    const text = this.#secrets.open(sealed, bindEnvironment(holder)).reveal();
    return JSON.parse(text) as Variables;
  }

  /** Returns the request with the directory and the variables of its process. */
  async fill<T extends Place>(sandbox: Readonly<SandboxRow>, request: T): Promise<T & Place> {
    const cwd = request.cwd ?? sandbox.cwd ?? undefined;
    if (!sandbox.has_env) return { ...request, cwd };
    const [hidden, all] = await Promise.all([this.#grants.listVariables(sandbox), this.read(sandbox)]);
    const own = Object.entries(all).filter(([name]) => !hidden.has(name));
    const env = { ...Object.fromEntries(own), ...request.env };
    if (Buffer.byteLength(JSON.stringify({ ...request, env, stdin: '' })) > MAX_FRAME_BYTES - HEAD_BYTES)
      throw new AppError(
        'invalid_request',
        'env: too large together with the env of the sandbox; make it smaller',
      );
    return { ...request, cwd, env };
  }
}

/** The context that variables are bound to when sealed. `holder` is a sandbox or a snapshot. */
export function bindEnvironment({ id, organization_id }: GrantHolder): SecretContext {
  return { organizationId: organization_id, purpose: 'environment', name: id };
}

/** Returns the path of a file in the guest; a relative one starts in the directory of the sandbox. */
export function resolvePath({ cwd }: Pick<SandboxRow, 'cwd'>, path: string): string {
  return cwd === null || path.startsWith('/') ? path : `${cwd}/${path}`;
}
