/**
 * Secrets that the lab gives to its service and keeps, so that it can use the service after any boot. Only this machine
 * can reach the emulated host.
 */
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { generateInvitation, generateKey } from '../scripts/service/environment-file.mjs';

export interface Secrets {
  key: string;
  invitation: string;
  password: string;
}

export async function ensureSecrets(directory: string): Promise<Secrets> {
  const path = join(directory, 'secrets.json');
  if (existsSync(path)) return JSON.parse(await readFile(path, 'utf8')) as Secrets;
  const invitation = generateInvitation();
  const secrets = { key: generateKey('us'), invitation, password: `of the lab ${invitation}` };
  await writeFile(path, JSON.stringify(secrets), { mode: 0o600 });
  return secrets;
}
