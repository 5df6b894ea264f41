/** The fault of a rule and its correction, as text that follows the rule in a message. */
export interface RuleFault {
  fault: string;
}
