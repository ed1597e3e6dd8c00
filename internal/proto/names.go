package proto

import "strconv"

// CodeName returns the name of an error code, "error 42" where the code means nothing.
func CodeName(code int32) string {
	switch code {
	case CodeOK:
		return "ok"
	case CodeRuntimeInconsistency:
		return "RuntimeInconsistency"
	case CodeMarshallingError:
		return "MarshallingError"
	case CodeUnimplemented:
		return "Unimplemented"
	case CodeOperationTimeout:
		return "OperationTimeout"
	case CodeBadArguments:
		return "BadArguments"
	case CodeNoNode:
		return "NoNode"
	case CodeNoAuth:
		return "NoAuth"
	case CodeBadVersion:
		return "BadVersion"
	case CodeNoChildrenForEphemerals:
		return "NoChildrenForEphemerals"
	case CodeNodeExists:
		return "NodeExists"
	case CodeNotEmpty:
		return "NotEmpty"
	case CodeSessionExpired:
		return "SessionExpired"
	case CodeInvalidACL:
		return "InvalidACL"
	case CodeAuthFailed:
		return "AuthFailed"
	case CodeSessionMoved:
		return "SessionMoved"
	case CodeNoWatcher:
		return "NoWatcher"
	}
	return "error " + strconv.Itoa(int(code))
}

// EventName returns the name of a watch event's type, "event 42" where the type means nothing.
func EventName(event int32) string {
	switch event {
	case EventCreated:
		return "Created"
	case EventDeleted:
		return "Deleted"
	case EventDataChanged:
		return "DataChanged"
	case EventChildrenChanged:
		return "ChildrenChanged"
	}
	return "event " + strconv.Itoa(int(event))
}
