import type { Command } from 'commander';
import { CoppiceError, DEFAULT_BASE_URL } from '../../../sdk/src/index.ts';
import { Failure } from '../output/failure.ts';
import { askKey, readKey } from '../profiles/ask-key.ts';
import { chooseAddress, openClient } from '../profiles/connection.ts';
import { changeProfiles, profilePath, readProfiles, requireProfileName } from '../profiles/profile-file.ts';
import { action, addCommand } from '../calls/command-call.ts';

const DEFAULT_PROFILE = 'default';

export function addLogin(program: Command): void {
  addCommand(program, {
    syntax: 'login',
    summary: 'stores the key of a service, and uses it from now on',
    details:
      'Asks for the API key without showing it, checks it with the service, and stores it in a file that only you can ' +
      'read. A key is never an argument, because other users of the machine can see those. The address comes from --url, ' +
      `SANDBOX_BASE_URL, or the profile, and is ${DEFAULT_BASE_URL} otherwise.`,
    examples: [
      'coppice login',
      'coppice login --profile work --url https://sandboxes.example.com',
      'pass show sandboxes | coppice login --key-stdin',
    ],
  })
    .option('--key-stdin', 'reads the key from standard input')
    .action(
      action<{ keyStdin?: boolean }>(async ({ options, out }) => {
        const name = requireProfileName(options.profile ?? DEFAULT_PROFILE);
        const given = chooseAddress(options.url, process.env);
        const url = given === '' ? (readProfiles().profiles.get(name)?.url ?? DEFAULT_BASE_URL) : given;
        const key =
          options.keyStdin === true ? await readKey(process.stdin) : await askKey(`API key for ${url}: `);
        const baseUrl = await checkKey(key, url);
        await changeProfiles(({ profiles }) => ({
          current: name,
          profiles: new Map([...profiles, [name, { url: baseUrl, key }]]),
        }));
        if ((process.env['SANDBOX_API_KEY'] ?? '') !== '')
          out.note(
            'SANDBOX_API_KEY is set and precedes this profile: unset it, or name --profile in each call.',
          );
        const where = profilePath();
        await out.result(
          { profile: name, url: baseUrl, file: where },
          `Logged in to ${baseUrl} as profile "${name}", stored in ${where}.`,
        );
      }),
    );
}

/** Makes a call with the key. Returns the address of the service in its usual form. */
async function checkKey(key: string, url: string): Promise<string> {
  const client = openClient({ key, url }, { maxRetries: 0 });
  try {
    await client.sandboxes.list({ limit: 1 });
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    if (error.code === 'unauthorized')
      throw new Failure(`${client.baseUrl} does not accept this key: copy it again, or check --url`);
    // The service knows the key, which may do less than this call.
    if (error.code !== 'forbidden') throw error;
  }
  return client.baseUrl;
}
