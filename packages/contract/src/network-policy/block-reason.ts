/** Reasons for a refused connection: the `reason` of the audit event `network.blocked`. */
export const BLOCK_REASONS = {
  denied_by_rule: 'A deny rule matches the name or the address.',
  not_allowed: 'No allow rule matches, and the policy refuses the rest.',
  name_missing: 'The address alone is not allowed, and the connection showed no name.',
  name_hidden: 'The protocol shows a name, but the name is hidden, missing or unreadable.',
  name_invalid: 'The shown name is not a host name, or is an address other than the one connected to.',
  name_late: 'The connection showed a name only after it had been judged, and dialled, without one.',
  name_not_resolved: 'The connection is open to an address to which its name was not resolved.',
  private_address: 'The address is in a private range that the operator has not opened.',
  host_address: 'The address belongs to the host or to another sandbox.',
  reserved_address: 'The address is loopback, link-local, multicast or reserved.',
  too_many_connections:
    'The sandbox, or all sandboxes of the host together, reached the limit of connections.',
  protocol_not_allowed: 'A policy with rules allows only TCP, and DNS queries to the resolver.',
  source_not_own: 'The source address of the packet is not the address of the sandbox.',
} as const;

export type BlockReason = keyof typeof BLOCK_REASONS;
