/**
 * The fault in an invalid log:
 * `altered`: the entry was changed, or the secret is not that of this log;
 * `missing`: entries are missing before this one, or before the head;
 * `reordered`: the entry precedes an entry that belongs before it;
 * `inserted`: the entry does not belong here, and the next one fits in its place;
 * `other_sandbox`: the entry belongs to the log of another sandbox;
 * `other_organization`: the entry belongs to the log of another organization;
 * `unknown_secret`: the secret of the entry was not given, or the entry was changed;
 * `other_head`: the log is valid, but the head was read from another log.
 */
export type AuditProblem =
  | 'altered'
  | 'missing'
  | 'reordered'
  | 'inserted'
  | 'other_sandbox'
  | 'other_organization'
  | 'unknown_secret'
  | 'other_head';

/** Result of `verifyAudit` and `verifyOrganizationAudit`. */
export type AuditVerdict =
  | {
      valid: true;
      /** Number of entries. */
      entries: number;
      /**
       * True when no entry can be missing at the end: the log reaches the head, or ends with the end of the sandbox.
       */
      complete: boolean;
    }
  | {
      valid: false;
      /** Number of valid entries before the fault. */
      entries: number;
      /** The `seq` at which the chain breaks. */
      seq: number;
      /** Kind of the fault. */
      problem: AuditProblem;
      /** Description of the fault for people. */
      message: string;
    };
