/** Outbound connections of this process for guests: the host's resolvers resolve names, and the host's sockets dial. */
import type { BlockReason } from '@coppice/contract';
import type { Socket } from 'node:net';
import type { Guest } from '../guest-table.ts';

/** A destination to dial. */
export interface DialTarget {
  port: number;
  /** The folded name to resolve. The caller has judged the name; `dial` judges its addresses. */
  name?: string;
  /**
   * Without a name: the address to dial, which the caller has judged. With a name: the address to try first if the name
   * resolves to it.
   */
  address?: string;
}

/** An open connection, and the address to which it was dialled. */
export interface Dialled {
  socket: Socket;
  address: string;
}

export interface Upstream {
  /**
   * Resolves a name and returns its IPv4 addresses that the guest's policy does not refuse, at least one. Throws
   * `RefusedError` when the policy refuses all of them, or an alias on the way to them, and `UnreachableError` when no
   * address arrives in time.
   */
  resolveName(guest: Guest, name: string): Promise<string[]>;

  /**
   * Opens a connection. The socket is paused, allows half-close and does not delay small writes. The caller owns it,
   * and must judge again because the policy may have changed meanwhile. Throws as `resolveName` does.
   */
  dial(guest: Guest, target: DialTarget, signal?: AbortSignal): Promise<Dialled>;
}

/** Thrown when the policy refuses the destination. */
export class RefusedError extends Error {
  readonly reason: BlockReason;
  /** The refused address. undefined when an alias is refused. */
  readonly address: string | undefined;

  constructor(reason: BlockReason, address?: string) {
    super(`refused: ${reason}`);
    this.name = 'RefusedError';
    this.reason = reason;
    this.address = address;
  }
}

/** Thrown when the network or a name server refuses, or does not answer. */
export class UnreachableError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'UnreachableError';
  }
}
