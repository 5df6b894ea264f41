/**
 * Decides which requests of controls the runner accepts. It keeps the highest epoch that it has seen, also across restarts,
 * and refuses lower ones: a control that has lost this runner to another one can then no longer change anything here.
 *
 * Requests without an epoch are those of programs on this machine, which only the Unix socket accepts.
 */
import type { IncomingHttpHeaders } from 'node:http2';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { findFile } from '../../lib/files/find-file.ts';
import {
  describeVersions,
  EPOCH_HEADER,
  findCommonVersion,
  PROTOCOL_HEADER,
  PROTOCOL_VERSIONS,
  WireRefusedError,
} from '../../lib/protocol/wire-headers.ts';

const NAME = 'epoch';
const NUMBER = /^[1-9]\d{0,15}$/u;

export interface Admitted {
  /** Undefined without one. */
  epoch: number | undefined;
  /** Whether the request is the first one of a new owner. */
  isRaised: boolean;
}

export class Fence {
  readonly #path: string;
  #epoch: number;

  constructor(dataDir: string) {
    this.#path = join(dataDir, NAME);
    const text = findFile(this.#path)?.toString('utf8');
    if (text !== undefined && !NUMBER.test(text))
      throw new AppError('internal', `${this.#path} is damaged: delete it; the next control sets it again`);
    this.#epoch = Number(text ?? 0);
  }

  /** The highest epoch so far; 0 before the first. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Throws {@link WireRefusedError} for another protocol or a lower epoch, `invalid_request` for a missing header. */
  admit(headers: IncomingHttpHeaders, { isNetwork }: { isNetwork: boolean }): Admitted {
    const version = readNumber(headers, PROTOCOL_HEADER, isNetwork);
    if (version !== undefined && findCommonVersion({ oldest: version, newest: version }) === undefined)
      throw new WireRefusedError(
        'protocol_unsupported',
        `the request is in version ${version} of the protocol, and this runner speaks ${describeVersions(PROTOCOL_VERSIONS)}: ` +
          'install the same version of Coppice on both machines',
      );
    const epoch = readNumber(headers, EPOCH_HEADER, isNetwork);
    if (epoch !== undefined && epoch < this.#epoch)
      throw new WireRefusedError(
        'fenced',
        `another control owns this runner since: the epoch of the request is ${epoch}, the highest so far ${this.#epoch}`,
      );
    const isRaised = epoch !== undefined && epoch > this.#epoch;
    if (isRaised) this.#raise(epoch);
    return { epoch, isRaised };
  }

  /** Durable before the request is carried out, so that no restart makes an earlier owner acceptable again. */
  #raise(epoch: number): void {
    writeDurably(this.#path, String(epoch));
    this.#epoch = epoch;
  }
}

function readNumber(headers: IncomingHttpHeaders, name: string, isRequired: boolean): number | undefined {
  const text = headers[name];
  if (text === undefined && !isRequired) return undefined;
  if (typeof text !== 'string' || !NUMBER.test(text) || !Number.isSafeInteger(Number(text)))
    throw new AppError('invalid_request', `the header ${name} must be one positive whole number`);
  return Number(text);
}
