import { hostname } from 'node:os';

/** Addresses that stand for every address of the machine. */
const ANY_ADDRESS = /^(?:0\.0\.0\.0|\[::\])$/u;

/**
 * Returns the address of the dashboard at which a person accepts an invitation, or undefined for a service that chooses
 * its port. The invitation is in the fragment, which browsers send to no server.
 * @param {{ listen: string, hasTls: boolean, invitation: string }} service  `listen`: value of COPPICE_LISTEN
 * @returns {string | undefined}
 */
export function buildSignUpLink({ listen, hasTls, invitation }) {
  const [, host = '', port = '0'] = /^(.+):(\d{1,5})$/u.exec(listen) ?? [];
  const origin = `${hasTls ? 'https' : 'http'}://${ANY_ADDRESS.test(host) ? hostname() : host}:${port}`;
  if (Number(port) === 0 || !URL.canParse(origin)) return undefined;
  return `${new URL(origin).origin}/sign-up#invitation=${invitation}`;
}
