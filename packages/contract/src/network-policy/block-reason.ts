/** Why a connection was refused: the `reason` of the audit event `network.blocked`. */
export const BLOCK_REASONS = {
  denied_by_rule: 'A deny rule matches its name or its address.',
  not_allowed: 'No allow rule matches, and the policy refuses the rest.',
  name_missing: 'The address alone is not allowed, and the connection showed no name.',
  name_hidden: 'It would have shown a name, but hid it or sent it in a form that cannot be read.',
  name_invalid: 'What it showed is no host name, or an address that is not the one it connects to.',
  name_late: 'It showed a name only after it had been judged, and dialled, without one.',
  name_not_resolved: 'It is open to an address to which its name was not resolved.',
  private_address: 'The address is of a private range that the operator has not opened.',
  host_address: 'The address is one of the host, or of another sandbox.',
  reserved_address: 'The address is loopback, link-local, multicast or reserved.',
  too_many_connections: 'The sandbox, or all of the host together, has as many connections as it may.',
  protocol_not_allowed: 'A policy with rules lets nothing out but TCP, and questions to the resolver.',
  source_not_own: 'The packet has another source than the address of the sandbox.',
} as const;

export type BlockReason = keyof typeof BLOCK_REASONS;
