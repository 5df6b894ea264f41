import { ADMIN_COMMANDS } from './admin-commands.mjs';
import { doctor } from './doctor.mjs';

const USAGE = `usage: coppice admin doctor [--json]
       coppice admin image import <directory or .tar> --as local/<name>:<tag> [--name <name in the layout>]
       coppice admin image list
       coppice admin image remove local/<name>:<tag>
       coppice admin backup <new directory>
       coppice admin restore <directory>
       coppice admin master-key rotate
       coppice admin organization list [--json]
       coppice admin organization grant <organization> <USD> [--note <text>]
       coppice admin organization limit <organization> --<limit> <number | none | default> …
       coppice admin runner token [--minutes <number>] [--runner <id>]
       coppice admin runner join https://<control:port> --token <token | -> [--address <host:port>]
       coppice admin runner list [--json]
       coppice admin runner cordon | uncordon <id>
       coppice admin runner drain <id> [--minutes <number>]
       coppice admin runner revoke <id>
       coppice admin control list [--json]

These commands run on the server, from the checkout or the installation of the service.

  doctor   checks what Coppice needs on this machine, and says how to fix what is missing; exit code 1 if a
           required part is missing
  image    imports images on a machine without a registry: OCI layouts, or archives of them as
           "podman save --format oci-archive" and "skopeo copy … oci-archive:…" write them; requires root
  backup   writes a consistent copy of the database, and the master key, to a directory; the service may run
  restore  restores a backup where there is no database yet, also under another version of PostgreSQL; the
           service must not run
  master-key  makes a new master key and seals all stored secrets with it; the service must not run, sandboxes
           keep running; if it was interrupted, run it again to finish
  organization  lists organizations with their cost, grants them credit (a negative amount withdraws credit), and
           sets limits for one organization; the service may run
  runner   on the machine of a control: makes a token with which one runner may join, lists runners, keeps
           new sandboxes away from one (cordon), empties it (drain), and revokes one for good. On the machine of the
           new runner, whose service must not run: joins
  control  lists the controls that are alive, with the number of their runners
`;

/**
 * Commands by name. A command takes the arguments after its name and returns the exit code.
 * @type {Map<string, (args: string[]) => Promise<number>>}
 */
const COMMANDS = new Map([['doctor', doctor], ...ADMIN_COMMANDS]);

/**
 * Runs a command of the operator. It needs no npm packages, because `doctor` runs before set-up.
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export async function admin([name, ...args]) {
  const command = COMMANDS.get(name ?? '');
  if (command !== undefined) return command(args);
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') {
    process.stdout.write(USAGE);
    return 0;
  }
  process.stderr.write(`coppice admin: unknown command "${name}"\n\n${USAGE}`);
  return 2;
}
