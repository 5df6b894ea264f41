/** The lines that a start prints for its operator. */
import { bootstrapFile, type Bootstrapped } from './control/accounts/bootstrap/bootstrapped.ts';
import { quoteArgument } from './curl-hint.ts';
import type { RoleMessage } from './role-message.ts';

type RunnerMessage = Exclude<RoleMessage, { type: 'control-ready' }>;

export function describeRunner(message: RunnerMessage): string[] {
  const accelerator = `accelerator: ${message.accelerator} (${message.reason})`;
  if (message.type === 'accelerator-changed') return [accelerator];
  const { networkAbsence, missingLimits, ranges } = message;
  return [
    accelerator,
    ...(networkAbsence === undefined ? [] : [`network: none (${networkAbsence})`]),
    ...(missingLimits === undefined ? [] : [`sandboxes are not limited in: ${missingLimits}`]),
    ...(ranges === undefined || networkAbsence !== undefined ? [] : [`guest addresses: ${ranges.guestCidr}`]),
    ...(ranges === undefined ? [] : [`user ids of VMs: from ${ranges.uidBase}`]),
  ];
}

/** Returns the secrets themselves, or the paths of their files. */
export function describeBootstrap({ apiKey, invitation, directory }: Bootstrapped): string[] {
  const describe = (what: string, name: 'apiKey' | 'invitation', secret: string | undefined): string[] => {
    if (secret === undefined) return [];
    if (directory === undefined) return [`${what}, shown this once:\n\n  ${secret}\n`];
    const path = bootstrapFile(directory, name);
    return [`${what}, in a file with mode 0600; remove it once you have it:\n\n  ${path}\n`];
  };
  return [
    ...describe('\nAPI key of the organization "default"', 'apiKey', apiKey),
    ...describe('Invitation for its first owner, good for a week', 'invitation', invitation),
  ];
}

/**
 * Names the dashboard. A new invitation that may be shown is in the fragment of a link: browsers send it to no server,
 * so it is in no log.
 * @param address  of the service, for a browser
 */
export function describeDashboard(
  address: string,
  { invitation, directory }: Pick<Bootstrapped, 'invitation' | 'directory'>,
): string[] {
  if (invitation === undefined || directory !== undefined) return [`dashboard: ${address}/`];
  return [
    `Accept it in a browser, or give this link to the owner:\n\n  ${buildSignUpLink(address, invitation)}\n`,
  ];
}

function buildSignUpLink(address: string, invitation: string): string {
  return `${address}/sign-up#invitation=${encodeURIComponent(invitation)}`;
}

/**
 * Returns the key for a shell command: the key itself, or, if it must not be shown, an expression that reads its file.
 */
export function showKey(apiKey: string, directory: string | undefined): string {
  return directory === undefined ? apiKey : `$(cat ${quoteArgument(bootstrapFile(directory, 'apiKey'))})`;
}
