/** Explains to the operator why a role could not start: with the name of the setting, without a stack. */
import { AppError } from '@coppice/contract';
import { MasterKeyError } from './control/secrets/master-key.ts';
import { DatabaseTakenError } from './control/db/database-lease.ts';
import { SchemaError } from './control/schema/migrate.ts';
import { PostgresMajorError, PostgresMissingError } from './control/db/postgres/postgres-directory.ts';
import { ObjectStoreError } from './lib/objects/object-store-error.ts';
import { InstanceLockedError } from './lib/process/instance-lock.ts';
import { NotJoinedError } from './runner/identity/join-record.ts';

export class StartError extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'StartError';
  }
}

/** Option names of the parts, and the variables from which the options come. */
const SETTINGS: Readonly<Record<string, string>> = {
  acceleratorMode: 'COPPICE_ACCELERATOR',
  cpuModel: 'COPPICE_CPU',
  networkMode: 'COPPICE_NETWORK',
  guestCidr: 'COPPICE_GUEST_CIDR',
  uidBase: 'COPPICE_UID_BASE',
  dataDir: 'COPPICE_DATA_DIR',
  openPrivateRanges: 'COPPICE_OPEN_PRIVATE_RANGES',
  upstreamResolvers: 'COPPICE_RESOLVERS',
  mirrors: 'COPPICE_REGISTRY_MIRRORS',
  insecureRegistries: 'COPPICE_INSECURE_REGISTRIES',
};

const LISTEN_FAILURES: Readonly<Record<string, string>> = {
  EADDRINUSE: 'is in use by another program',
  EADDRNOTAVAIL: 'is not an address of this machine',
  EACCES: 'may not be used by the service: ports below 1024 are reserved',
};

/** Returns a StartError if the operator can fix the error, else the error itself. */
export function explainStart(error: unknown): unknown {
  const isExplained =
    error instanceof InstanceLockedError ||
    error instanceof MasterKeyError ||
    error instanceof NotJoinedError ||
    error instanceof DatabaseTakenError ||
    error instanceof SchemaError ||
    error instanceof PostgresMajorError ||
    error instanceof PostgresMissingError;
  if (isExplained) return new StartError(error.message, error);
  if (error instanceof ObjectStoreError)
    return new StartError(`COPPICE_OBJECT_STORE: ${error.message}`, error);
  if (error instanceof AppError && error.code === 'invalid_request') return explainOption(error);
  return error instanceof Error ? explainListen(error) : error;
}

function explainOption(error: AppError): unknown {
  const option = error.message.split(':', 1)[0] ?? '';
  const setting = SETTINGS[option];
  return setting === undefined ? error : new StartError(error.message.replaceAll(option, setting), error);
}

interface ListenFailure extends NodeJS.ErrnoException {
  address?: string;
  port?: number;
  /** The setting with the address; that of the API by default. */
  setting?: string;
}

function explainListen(error: ListenFailure): unknown {
  const reason = error.syscall === 'listen' ? LISTEN_FAILURES[error.code ?? ''] : undefined;
  if (reason === undefined || error.port === undefined) return error;
  return new StartError(
    `${error.address ?? ''}:${error.port} ${reason}; set ${error.setting ?? 'COPPICE_LISTEN'} to another address:port`,
    error,
  );
}
