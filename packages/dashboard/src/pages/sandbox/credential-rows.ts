/** The credentials of a sandbox as the form has them. A change replaces all, so values must be given anew. */
import type { CredentialEndpoint, CredentialInfo, CredentialOptions } from '../../../../sdk/src/index.ts';

export interface CredentialRow {
  id: number;
  service: string;
  /** Name of a secret of the organization; empty: a value of its own. */
  secret: string;
  value: string;
  /** Requests that it signs; null: any. They are kept as they are. */
  endpoints: CredentialEndpoint[] | null;
}

export function toRows(credentials: readonly CredentialInfo[]): CredentialRow[] {
  return credentials.map(({ service, secret, endpoints }, index) => ({
    id: index + 1,
    service,
    secret: secret ?? '',
    value: '',
    endpoints,
  }));
}

/** Returns the fault of a row; undefined if it has none. The service checks the rest. */
export function findRowFault(row: CredentialRow, all: readonly CredentialRow[]): string | undefined {
  const service = row.service.trim();
  if (service === '') return 'Name a service.';
  if (all.some((other) => other.id !== row.id && other.service.trim() === service))
    return `${service} occurs twice.`;
  return row.secret === '' && row.value === '' ? 'Choose a secret, or enter a value.' : undefined;
}

export function toCredentialOptions(rows: readonly CredentialRow[]): CredentialOptions {
  const credentials: NonNullable<CredentialOptions['credentials']> = {};
  const credentialsV2: NonNullable<CredentialOptions['credentialsV2']> = {};
  for (const { service, secret, value, endpoints } of rows) {
    const key = secret === '' ? value : { secret };
    if (endpoints === null) credentials[service.trim()] = key;
    else credentialsV2[service.trim()] = { key, endpoints };
  }
  return { credentials, credentialsV2 };
}
