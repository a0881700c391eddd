// Included before every Objective-C++ file on hosts without Apple's SDK: closes the gaps between
// the objc.h of GCC's runtime and Apple's.
#pragma once
#ifdef __OBJC__
#import <objc/objc.h>
// GCC spells them (BOOL)1 and (BOOL)0, which `@YES` cannot take.
#undef YES
#undef NO
#define YES __objc_yes
#define NO __objc_no
#ifndef NS_SWIFT_NAME
#define NS_SWIFT_NAME(name)
#endif
#ifndef API_AVAILABLE
#define API_AVAILABLE(...)
#define API_UNAVAILABLE(...)
#define API_DEPRECATED(...)
#endif
#endif
