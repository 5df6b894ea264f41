/**
 * Returns the invitation of a link such as `/sign-up#invitation=inv_…`. It is in the fragment, which browsers do not
 * send: no log of a proxy has it.
 */
export function readInvitation(): string {
  return new URLSearchParams(location.hash.slice(1)).get('invitation') ?? '';
}

/** Writes the link of an invitation. */
export function invitationLink(invitation: string): string {
  return `${location.origin}/sign-up#invitation=${encodeURIComponent(invitation)}`;
}
